"""Arrow-of-time and opposite-action tests."""
