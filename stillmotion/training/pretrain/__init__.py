"""The training verbs, side by side: each says what a step is, and what a test is."""
