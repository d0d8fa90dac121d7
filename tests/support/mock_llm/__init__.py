"""A model server of our own for harnesses under test: what it answers is written in the task."""
