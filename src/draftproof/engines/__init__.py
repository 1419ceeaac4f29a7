"""Ways to generate a text, behind one call."""

from draftproof.quiet import import_transformers

import_transformers()
