"""Let transformers' own `generate` decode speculatively, and ask whether it would pay at all.

python examples/3_inside_transformers.py
"""

import torch

import draftproof
from draftproof import cost
from draftproof.models.load import load

target, draft = load("demo-target"), load("demo-draft")
hook = draftproof.custom_generate(draft.model, k=3, tokenizer=target.tokenizer, draft_tokenizer=draft.tokenizer)

inputs = target.tokenizer("The import statement", return_tensors="pt")
options = {"max_new_tokens": 64, "do_sample": False, "pad_token_id": 0}
plain = target.model.generate(inputs["input_ids"], attention_mask=inputs["attention_mask"], **options)
ours = target.model.generate(
    inputs["input_ids"], attention_mask=inputs["attention_mask"], custom_generate=hook, **options
)
print(target.tokenizer.decode(ours[0]))
print("\nsame tokens as generate without a draft:", torch.equal(plain, ours))

rounds = hook.generation.rounds
alpha = cost.agreement(rounds)
print(f"a guess whose forerunners were right is right {alpha:.0%} of the time,")
print(f"so more guesses can bring at most {cost.ceiling(alpha):.1f} tokens a round")
