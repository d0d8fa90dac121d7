"""What a run left in its out folder, for whoever shows it."""

from __future__ import annotations

from capsule_runtime.host.out_files import OutFile, OutFiles, list_out_files

__all__ = ["OutFile", "OutFiles", "list_out_files"]
