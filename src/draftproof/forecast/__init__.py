"""What speculation would make of a text, from traces of it: replayed, and priced. Without models, without torch."""
