"""Controlled studies: many runs, one question."""
