"""Synthetic videos."""
