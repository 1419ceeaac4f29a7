"""Models: loading, placement, the position-addressed cache, sessions, tokens."""
