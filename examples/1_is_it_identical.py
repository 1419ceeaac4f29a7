"""Write a text speculatively, prove that it is plain decoding's, and look at the ledger.

python examples/1_is_it_identical.py [TARGET DRAFT]
"""

import sys

from draftproof import Speculator

target, draft = sys.argv[1:3] if len(sys.argv) > 2 else ("demo-target", "demo-draft")
speculator = Speculator(target, draft, k=3)
generation = speculator.generate('The "for" statement', max_new_tokens=64, check=True)

print(generation.text)
counts = generation.counts
print(f"\nidentical: {generation.identical}")
print(f"{counts.tokens} tokens in {counts.target_passes} target passes and {counts.draft_passes} draft passes")
print(f"{counts.accepted} of {counts.proposed} guesses accepted ({counts.acceptance_rate:.0%})")
