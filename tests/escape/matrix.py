"""Try the corpus of escapes on this machine: `python tests/escape/matrix.py [--json PATH] [TIER…]`.

Prints what held in which tier, and stores it. Ends with 0 if all that was promised held, 2 if a tier
cannot be had here, 3 if a harness got out, 4 if a ceiling gave way.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.corpus.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(tempfile.gettempdir())))
