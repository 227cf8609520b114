"""The LanceDB tables of an index, and their checksums."""
