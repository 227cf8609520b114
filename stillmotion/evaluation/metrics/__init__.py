"""Metrics and confidence intervals."""
