"""Action detection: configuration, recipes, task, report and encoder."""
