"""`python -m molslice` is `molslice`."""

import sys

from molslice.cli import main

sys.exit(main())
