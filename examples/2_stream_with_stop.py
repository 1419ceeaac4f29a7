"""Stream a text as a person reads it, and end it at a stop string, whichever round brings it.

python examples/2_stream_with_stop.py
"""

from draftproof import Speculator

speculator = Speculator("demo-target", "demo-draft", k=3)
stream = speculator.stream("The for statement", max_new_tokens=120, stop=["\n\n", "\nclass "])
for chunk in stream:
    print(chunk.text, end="", flush=True)

generation = stream.generation
print(f"\n\n{generation.finish_reason} ({generation.stop!r}) after {len(generation.tokens)} tokens")
print("guesses accepted in each round:", [f"{r.accepted}/{len(r.proposed)}" for r in generation.rounds])
