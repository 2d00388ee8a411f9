"""Plot MAE against parameters. Same as `molslice compare`.

python scripts/params_vs_mae.py --config configs/molecule/quickstart.yaml --minutes 1 --out runs/compare
python scripts/params_vs_mae.py --runs runs/first runs/slices --out runs/drawn
"""

import sys

from molslice.cli import main

if __name__ == "__main__":
    sys.exit(main(["compare", *sys.argv[1:]]))
