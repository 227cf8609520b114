"""Helpers without knowledge of videos or networks: files, processes, formatting, registries."""
