"""`python -m capsule_runtime` is `capsule`."""

from __future__ import annotations

import sys

from capsule_runtime.cli import main

sys.exit(main())
