"""`demo`: four methods on synthetic videos."""
