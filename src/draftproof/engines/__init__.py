"""Ways to generate a text, behind one call."""
