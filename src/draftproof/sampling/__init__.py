"""From a row of logits to a token: transforms, laws, and the only source of randomness."""

from draftproof.quiet import import_transformers

import_transformers()
