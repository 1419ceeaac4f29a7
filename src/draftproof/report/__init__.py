"""What a person sees. Reads records and never runs a model."""
