"""Where the files of a model and of an adapter are, found without torch."""
