"""`make fault-injection`: commands are killed, doubled, starved of disk and fed damaged files; prints a table."""
