"""Transcoding of data sets: small copies, shards, static and dynamic versions."""
