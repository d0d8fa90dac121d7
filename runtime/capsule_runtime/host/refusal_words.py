"""Words that a burier's child says and the supervisor understands.

Loaded by path into the warden's bare interpreter too: the standard library only.
"""

CANNOT_SHIFT = "cannot show as the run's own:"
"""Before the path, where a file system can not. The supervisor knows what helps."""
