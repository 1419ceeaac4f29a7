"""The rules by which the target judges a proposal, by name."""

from draftproof.verify.base import Judge
from draftproof.verify.block import Block
from draftproof.verify.matching import Matching
from draftproof.verify.ratio import Ratio

JUDGES: dict[str, Judge] = {"greedy": Matching(), "coupled": Matching(), "ratio": Ratio(), "block": Block()}
