"""Measure the time and the memory of clusters of molecules, and how far held-out compounds are from training.

    python benchmarks/cluster_split.py data/gap_xtb_100k/raw/data.csv.gz

Molecules are drawn from a table with a column `smiles`. For each number of molecules, one process finds their
clusters. Then 2,000 of them are divided by each split of `molslice fit`, with three seeds. The similarity of
a held-out compound is the Tanimoto similarity of Morgan bits to its nearest training compound.

Writes `benchmarks/results/cluster_split.json`.
"""

import multiprocessing
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from record import make_parser, record

from molslice.chem.clusters import SIMILARITY, find_clusters
from molslice.fitting.data import FitData, FitOptions
from molslice.fitting.table import read_fit_data

SIZES = (1_000, 5_000, 20_000)
DIVIDED = 2_000
SPLITS = ("random", "scaffold", "cluster")
SEEDS = 3


def cluster(smiles: list[str]) -> dict[str, Any]:
    """Find clusters, and return their number, the time and the memory they took."""
    find_clusters(smiles[:100])  # the first call loads libraries
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    labels = find_clusters(smiles)
    return {
        "molecules": len(smiles),
        "clusters": int(labels.max()) + 1,
        "largest": int(np.bincount(labels).max()),
        "seconds": round(time.process_time() - start, 2),
        "megabytes": round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024),
    }


def nearest_similarities(data: FitData) -> np.ndarray:
    """Return the similarity of each held-out row to its nearest training row."""
    bits = (data.molecules.counts > 0).astype(np.float32)
    held_out, training = bits[data.test], bits[~data.test]
    shared = held_out @ training.T
    union = held_out.sum(1)[:, None] + training.sum(1)[None] - shared
    return (shared / union).max(1)


def main() -> None:
    """Write the record."""
    parser = make_parser(__doc__)
    parser.add_argument("table", type=Path, help="a table with a column smiles")
    options = parser.parse_args()
    smiles = pd.read_csv(options.table)["smiles"].tolist()
    drawn = [smiles[place] for place in np.random.default_rng(0).permutation(len(smiles))]
    context = multiprocessing.get_context("spawn")
    sizes = []
    for count in SIZES:
        with context.Pool(1) as pool:
            sizes.append(pool.apply(cluster, (sorted(drawn[:count]),)))
        print(sizes[-1])
    splits = []
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        pd.DataFrame({"smiles": drawn[:DIVIDED], "y": np.arange(DIVIDED)}).to_csv(table, index=False)
        for split in SPLITS:
            near, held_out = [], []
            for seed in range(SEEDS):
                data = read_fit_data(table, ("y",), FitOptions(split=split, seed=seed), workers=0)
                near.append(nearest_similarities(data))
                held_out.append(int(data.test.sum()))
            values = np.concatenate(near)
            splits.append(
                {
                    "split": split,
                    "held_out": held_out,
                    "median_similarity": round(float(np.median(values)), 3),
                    "share_of_neighbors": round(float((values >= SIMILARITY).mean()), 3),
                }
            )
            print(splits[-1])
    result = {"similarity": SIMILARITY, "table": options.table.name, "sizes": sizes, "splits": splits}
    print(record("cluster_split", result, options.out))


if __name__ == "__main__":
    main()
