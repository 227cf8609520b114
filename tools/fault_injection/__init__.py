"""`make torture`: commands are killed, doubled, starved of disk, fed damaged files and asked odd questions."""
