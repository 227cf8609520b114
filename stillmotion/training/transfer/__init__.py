"""Image-to-video transfer: configuration, recipes, task, report and encoder."""
