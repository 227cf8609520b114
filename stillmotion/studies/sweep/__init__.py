"""`study sweep`: a recipe over several values of a setting and several seeds."""
