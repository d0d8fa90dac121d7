"""Rules: decides, and does no I/O, has no clock, never awaits."""
