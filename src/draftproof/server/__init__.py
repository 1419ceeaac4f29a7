"""An OpenAI-compatible server whose every text is its solo text. Needs the extra `serve`."""
