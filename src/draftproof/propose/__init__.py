"""Whatever guesses ahead."""
