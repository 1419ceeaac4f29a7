"""The rules by which the target judges a proposal."""
