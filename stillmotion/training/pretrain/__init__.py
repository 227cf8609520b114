"""Pretraining: configuration, recipes, task, report and encoder."""
