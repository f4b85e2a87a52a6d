"""One file per command: its options, and a call into the room that does the work."""
