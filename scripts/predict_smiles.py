"""Predict from SMILES. Same as `molslice predict`.

python scripts/predict_smiles.py gap-xtb --smiles "CCO" "c1ccccc1"
python scripts/predict_smiles.py runs/first --input molecules.csv --output predicted.csv
"""

import sys

from molslice.cli import main

if __name__ == "__main__":
    sys.exit(main(["predict", *sys.argv[1:]]))
