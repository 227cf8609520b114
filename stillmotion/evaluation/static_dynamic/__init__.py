"""Linear probes on the plain, static and dynamic versions of a data set."""
