"""Data sets: folders, lists, shards, public data sets, their splits and verification."""
