"""From a row of logits to a token: transforms, laws, and the only source of randomness."""
