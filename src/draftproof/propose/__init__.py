"""Who guesses, by name: proposers that need no model of their own."""

from draftproof.propose.base import Making
from draftproof.propose.ngram import Ngram

PROPOSERS: dict[str, Making] = {"ngram": Ngram}
