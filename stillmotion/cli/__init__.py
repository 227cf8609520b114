"""The command line `stillmotion`."""
