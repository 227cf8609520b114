"""Fine-tuning: configuration, recipes, task, report and encoder."""
