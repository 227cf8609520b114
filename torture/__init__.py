"""`make torture`: commands are killed, doubled, starved of disk and fed damaged files; a table says what came of it."""
