"""Data sets of clips, loaders and decoding workers."""
