"""Estimates of time, memory and disk space for `--dry-run` and `estimate`."""
