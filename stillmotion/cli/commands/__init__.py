"""The verbs of the command line, a function each."""
