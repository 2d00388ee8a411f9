"""Compare the time of converting SMILES to arrays with parsing alone, with OGB and with Graphormer.

    python benchmarks/featurizing.py molecules.smi.gz

All functions read the same rows in turn, in one process and one thread. The times are medians of the rounds,
in processor time for each molecule:

    rdkit        parse, canonical SMILES, second parse: what the canonical order needs at least
    molslice     SMILES to the arrays of a store, in canonical order
    input order  the same without the canonical order
    one by one   the same molecule by molecule, with RDKit's getters
    ogb          `ogb.utils.smiles2graph`
    graphormer   `smiles2graph`, then what Graphormer computes: offsets of features, shortest paths by Floyd
                 and Warshall, and the bonds on the paths up to five hops

Writes `benchmarks/results/featurizing.json`.

Source: Ying et al., arXiv 2106.05234, and their published code for the last function.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from graphormer_rewrite import graphormer_item
from prepare import read_smiles
from rdkit import Chem, rdBase
from record import make_parser, median_ratio, record, take_turns

from molslice.chem.featurize import HARD_MAX_ATOMS, many_molecule_arrays, molecule_arrays
from molslice.chem.smiles import ChemError, parse_smiles
from molslice.data.molecules.leaderboard import import_ogb
from molslice.files.cache import file_checksum

CHUNK = 2_000


def parse_twice(smiles: Sequence[str]) -> None:
    """Parse, write canonical SMILES, and parse them."""
    with rdBase.BlockLogs():
        for text in smiles:
            Chem.MolFromSmiles(Chem.MolToSmiles(Chem.MolFromSmiles(text)))


def convert(smiles: Sequence[str], atom_order: Any = "canonical") -> None:  # noqa: ANN401
    """Convert chunks of rows as `molslice prepare` and `molslice predict` do."""
    for start in range(0, len(smiles), CHUNK):
        many_molecule_arrays(smiles[start : start + CHUNK], atom_order=atom_order)


def convert_one_by_one(smiles: Sequence[str]) -> None:
    """Convert each row on its own."""
    for text in smiles:
        molecule_arrays(text)


def graphs(smiles: Sequence[str]) -> None:
    """Convert with OGB's function."""
    smiles2graph = import_ogb("ogb.utils").smiles2graph
    with rdBase.BlockLogs():
        for text in smiles:
            smiles2graph(text)


def graphormer_items(smiles: Sequence[str]) -> None:
    """Convert with OGB's function and compute the inputs of Graphormer."""
    smiles2graph = import_ogb("ogb.utils").smiles2graph
    with rdBase.BlockLogs():
        for text in smiles:
            graphormer_item(smiles2graph(text))


FUNCTIONS: dict[str, Callable[[Sequence[str]], None]] = {
    "rdkit": parse_twice,
    "molslice": convert,
    "input order": lambda smiles: convert(smiles, "input"),
    "one by one": convert_one_by_one,
    "ogb": graphs,
    "graphormer": graphormer_items,
}


def read_rows(path: Path, rows: int, max_atoms: int) -> list[str]:
    """Return SMILES at equal distances in a file, without those that cannot be read or are larger."""
    smiles = read_smiles(path, sys.maxsize)
    readable = []
    for text in smiles[:: max(1, len(smiles) // rows)]:
        try:
            parse_smiles(text, max_atoms)
        except ChemError:
            continue
        readable.append(text)
    return readable[:rows]


def measure(smiles: Sequence[str], rounds: int, slow_rows: int) -> list[dict[str, Any]]:
    """Time all functions in turn.

    Returns:
        For each function: microseconds of processor time for each molecule, and its ratios to `rdkit` and to
        `molslice`, all medians over the rounds.
    """

    def microseconds(name: str) -> float:
        rows = smiles[:slow_rows] if name == "graphormer" else smiles
        start = time.process_time()
        FUNCTIONS[name](rows)
        return (time.process_time() - start) / len(rows) * 1e6

    times = take_turns({name: partial(microseconds, name) for name in FUNCTIONS}, rounds + 1)
    times = {name: values[1:] for name, values in times.items()}  # the first round warms up
    return [
        {
            "name": name,
            "microseconds": statistics.median(values),
            "ratio_to_rdkit": median_ratio(values, times["rdkit"]),
            "ratio_to_molslice": median_ratio(values, times["molslice"]),
        }
        for name, values in times.items()
    ]


def main(argv: list[str] | None = None) -> None:
    """Measure, print and record."""
    parser = make_parser(__doc__)
    parser.add_argument("file", type=Path, help="a table of molecules in any format")
    parser.add_argument("--rows", type=int, default=4_000)
    parser.add_argument("--slow-rows", type=int, default=200, help="rows of the slowest function")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--max-atoms", type=int, default=HARD_MAX_ATOMS)
    options = parser.parse_args(argv)
    smiles = read_rows(options.file, options.rows, options.max_atoms)
    atoms = [molecule_arrays(text).atoms.shape[0] for text in smiles]
    payload = {
        "question": "processor time of converting a SMILES to arrays",
        "file": options.file.name,
        "file_sha256": file_checksum(options.file),
        "rows": len(smiles),
        "rows_of_graphormer": min(options.slow_rows, len(smiles)),
        "rounds": options.rounds,
        "median_atoms": statistics.median(atoms),
        "rdkit": rdBase.rdkitVersion,
        "results": measure(smiles, options.rounds, options.slow_rows),
    }
    print(record("featurizing", payload, options.out))
    for result in payload["results"]:
        print(
            f"{result['name']:12} {result['microseconds']:9.1f} us  {result['ratio_to_rdkit']:6.2f} x rdkit"
        )


if __name__ == "__main__":
    main()
