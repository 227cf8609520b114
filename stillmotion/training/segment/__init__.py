"""Temporal action segmentation: configuration, recipes, task, report and encoder."""
