"""Models: loading, placement, the position-addressed cache, sessions, tokens."""

from draftproof.quiet import import_transformers

import_transformers()
