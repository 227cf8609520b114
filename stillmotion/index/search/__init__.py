"""Search an index, or a folder without one, by appearance or motion."""
