"""The corpus of escapes: what a harness may try, as code, and what the host saw of it."""
