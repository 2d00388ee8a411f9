"""`python -m molslice.cli` is `molslice`."""

import sys

from molslice.cli import main

sys.exit(main())
