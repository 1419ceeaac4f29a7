"""Sample texts that do not depend on the draft: the same seed, with guesses and without.

python examples/4_sample.py
"""

from draftproof import Options, Speculator

speculator = Speculator("demo-target", "demo-draft", k=3)
options = Options(temperature=0.8, top_p=0.95, frequency_penalty=0.3, seed=7, max_new_tokens=48)

texts = {k: speculator.generate('The "while" statement', options, k=k).text for k in (0, 3, 8)}
print(texts[3])
print("same text with k = 0, 3 and 8:", len(set(texts.values())) == 1)

made = speculator.samples('The "while" statement', 3, options, verify="block", logprobs=True)
for one in made:
    likely = sum(token.logprob for token in one.logprobs) / len(one.logprobs)
    print(f"sample {one.sample}: {one.counts.acceptance_rate:.0%} of guesses kept, {likely:.2f} nats a token")
