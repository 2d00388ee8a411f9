"""Run `python -m molslice.cli` as `molslice`."""

import sys

from molslice.cli import main

sys.exit(main())
