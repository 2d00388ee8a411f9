"""What `fuzz.py` runs: from SMILES to arrays, from files to rows, model folders, and stores."""

import contextlib
import gzip
import io
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAVED = ROOT / "tests" / "saved_models"
MOLECULES = ROOT / "data" / "gap_xtb" / "raw" / "data.csv.gz"
ODD = (
    *("O[C@H]1C[C@@]2(SCCS2)CC2(SCCS2)C1", "C12=C3C4C5=C1[Ru]23541678C2=C1C6C7=C28", "[13CH3:7][O-].[Na+]"),
    *(
        "N->[Pt](Cl)(Cl)<-N",
        "CC |^1:0|",
        "[H]C([H])([H])Cl",
        "C%(101)CC%(101)",
        "*:*",
        "[Co@OH3](C)(N)(O)(F)(Cl)Br",
    ),
)
WHOLE = 7 * 19  # a multiple of the number of models that is at least 128
TABLES = ("t.csv", "t.csv.gz", "t.tsv", "t.smi", "t.sdf", "t.jsonl", "t.parquet")
Check = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Target:
    """A function of bytes, with inputs to start from.

    Attributes:
        prepare: Returns the function; it gets a folder for its files.
        seeds: Inputs to start from.
        words: Texts that libFuzzer inserts.
        chosen_bytes: Number of bytes before the content of a file, which choose what is done with it; None if
            an input is not a file.
    """

    prepare: Callable[[Path], Check]
    seeds: Callable[[], list[bytes]]
    words: tuple[str, ...]
    chosen_bytes: int | None = None


def prepare(name: str, folder: Path) -> Check:
    """Return the function of a target, after importing what it needs."""
    folder.mkdir(parents=True, exist_ok=True)
    return TARGETS[name].prepare(folder)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Let a `MolsliceError` pass if its message is one short line."""
    from molslice.types import MolsliceError

    try:
        yield
    except MolsliceError as error:
        message = str(error)
        assert message, "the message is empty"
        assert "\n" not in message, f"a message of several lines: {message!r}"
        assert len(message) < 3000, f"a message of {len(message)} characters"


def _smiles(_: Path) -> Check:
    import numpy as np

    from molslice.chem.featurize import ATOM_ORDERS, ChemError, many_molecule_arrays, molecule_arrays
    from molslice.ops.vocabulary import ATOM_FEATURE_SIZES, BOND_FEATURE_SIZES

    sizes = np.array(ATOM_FEATURE_SIZES), np.array(BOND_FEATURE_SIZES)

    def check(content: bytes) -> None:
        text = content.decode(errors="surrogateescape")
        for order in ATOM_ORDERS:
            many = many_molecule_arrays([text, "CC"], atom_order=order)
            assert many.atom_counts[1] == 2, "the row after it is lost"
            try:
                arrays, reason = molecule_arrays(text, atom_order=order), None
            except ChemError as error:
                arrays, reason = None, str(error)
            assert many.errors == ({} if reason is None else {0: reason}), "another reason among many rows"
            if arrays is None:
                assert "\n" not in str(reason)
                continue
            assert 1 <= len(arrays.atoms) <= 256
            assert np.array_equal(many.atoms[:-2], arrays.atoms)
            assert np.array_equal(many.bonds[:-1], arrays.bonds)
            assert (arrays.atoms < sizes[0]).all()
            assert (arrays.bonds[:, 2:] < sizes[1]).all()
            assert (arrays.bonds[:, :2] < len(arrays.atoms)).all()
            assert (arrays.bonds[:, 0] != arrays.bonds[:, 1]).all()

    return check


def _smiles_seeds() -> list[bytes]:
    with gzip.open(MOLECULES, "rt") as file:
        rows = [line.split(",")[1] for line in file.readlines()[1:4000:20]]
    return [text.encode() for text in (*rows, *ODD)]


def _table(folder: Path) -> Check:
    from molslice.chem.featurize import many_molecule_arrays
    from molslice.files.tables import open_table, read_columns

    def check(content: bytes) -> None:
        if not content:
            return
        file = folder / TABLES[content[0] % len(TABLES)]
        file.write_bytes(content[1:])
        with _refusals():
            with open_table(file) as table:
                names = list(table.names)
            rows = []
            for size in (2, 1000):
                chunks = list(read_columns(file, names[:1], chunk_rows=size))
                rows.append(
                    [
                        (*cells, chunk.errors.get(at))
                        for chunk in chunks
                        for at, cells in enumerate(chunk.cells)
                    ]
                )
            assert rows[0] == rows[1], "the rows depend on the size of a chunk"
            smiles = [row[0] for row in rows[0]][:20]
            arrays = many_molecule_arrays(smiles)
            assert len(arrays.atom_counts) == len(smiles), "rows are lost"

    return check


def _table_seeds() -> list[bytes]:
    import pyarrow
    import pyarrow.parquet

    plain = 'smiles,n\nCCO,1\n"C,C",2\nC,3\n'
    block = (
        "\n  x\n\n  1  0  0  0  0  0  0  0  0  0999 V2000\n    0.0000    0.0000    0.0000 C   0  0\nM  END\n"
    )
    packed = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"smiles": ["CCO", "C"], "n": [1, 2]}), packed)
    contents = (
        plain.encode(),
        gzip.compress(plain.encode(), mtime=0),
        plain.replace(",", "\t").encode("utf-16"),
        b"CCO ethanol\nC methane\n",
        f"{block}> <n>\n1\n\n$$$$\n{block}$$$$\n".encode(),
        b'{"smiles": "CCO", "n": 1}\n{"smiles": "C"}\n',
        packed.getvalue(),
    )
    return [bytes([kind]) + content for kind, content in enumerate(contents)]


def _model(folder: Path) -> Check:
    """Replace one file of a saved model: byte 0 chooses the model, byte 1 the file.

    From 128 on, byte 0 loads the whole model also if the file is part of a network inside of it.
    """
    import numpy as np

    from molslice.inference.load import load_model

    models = _models(folder)

    def check(content: bytes) -> None:
        if len(content) < 2:
            return
        model = models[content[0] % len(models)]
        files = _files(model)
        changed = model / files[content[1] % len(files)]
        loaded = model if content[0] >= 128 else changed.parent
        intact = changed.read_bytes()
        try:
            changed.write_bytes(content[2:])
            with _refusals():
                predictor = load_model(loaded)
                level = 0.8 if (loaded / "calibration.json").exists() else None
                options = predictor.find_options(level, domain=(loaded / "domain.json").exists())
                predictions = predictor.predict_with_errors(["CCO", "c1ccccc1"], options=options)
                finite = np.isfinite(predictions.values).all(1).tolist()
                assert len(predictions.errors) == 2, "rows are lost"
                assert finite == [reason is None for reason in predictions.errors], (
                    "a row without value or reason"
                )
                if predictions.lower is not None and predictions.upper is not None:
                    assert (predictions.lower <= predictions.upper)[finite].all(), (
                        "an interval that is not one"
                    )
        finally:
            changed.write_bytes(intact)

    return check


def _models(folder: Path) -> list[Path]:
    """Copy saved models to a folder, one of them with training molecules, and make an ensemble of two."""
    from molslice.folders.ensemble import member_folder, write_ensemble
    from molslice.inference.domain import TrainingDomain

    names = ("softmax", "slice_sort", "classes", "trained", "fit", "fit_encoder")
    ensemble = folder / "ensemble"
    if not ensemble.exists():
        for name in names:
            shutil.copytree(SAVED / name, folder / name)
        for place in range(2):
            shutil.copytree(SAVED / "softmax", member_folder(ensemble, place))
        write_ensemble(ensemble, 2)
        TrainingDomain.of_smiles(["CCO", "CCN", "c1ccccc1O"]).write(folder / "trained")
    return [*(folder / name for name in names), ensemble]


def _files(model: Path) -> list[str]:
    return sorted(
        path.relative_to(model).as_posix()
        for path in model.rglob("*")
        if path.suffix in (".safetensors", ".json", ".yaml") and path.name != "expected.json"
    )


def _model_seeds() -> list[bytes]:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        return [
            bytes([number + whole, place]) + (model / file).read_bytes()
            for number, model in enumerate(_models(Path(name)))
            for place, file in enumerate(_files(model))
            for whole in ((0, WHOLE) if "/" in file else (0,))
        ]


def _store(folder: Path) -> Check:
    """Replace one file of a store: byte 0 chooses the file, and whether checksums are compared."""
    import numpy as np

    from molslice.data.molecules.collate import collate
    from molslice.data.molecules.store import MoleculeStore
    from molslice.data.molecules.verify import verify_store

    source = folder / "source"
    _write_store(source)
    files = sorted(path.name for path in source.iterdir())

    def check(content: bytes) -> None:
        if not content:
            return
        forged = folder / "store"
        shutil.rmtree(forged, ignore_errors=True)
        shutil.copytree(source, forged)
        (forged / files[content[0] % len(files)]).write_bytes(content[1:])
        with _refusals():
            verify_store(forged)
        with _refusals():
            store = MoleculeStore.open(forged, verify=content[0] >= 128)
            rows = np.flatnonzero(store.num_atoms)[:10]
            for row in rows:
                store.arrays(int(row))
            if len(rows):
                collate(store, rows)

    return check


def _write_store(folder: Path) -> None:
    import numpy as np

    from molslice.chem.featurize import molecule_arrays
    from molslice.data.molecules.store import MoleculeStore

    if folder.exists():
        return
    molecules = [molecule_arrays("CCO"), "not valid SMILES", molecule_arrays("c1ccccc1")]
    store = MoleculeStore.in_memory(molecules, np.array([[1.0], [np.nan], [2.0]], np.float32))
    MoleculeStore.write(folder, [store], target_names=["gap"], target_units=["eV"], source="fuzzing")


def _store_seeds() -> list[bytes]:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "store")
        _write_store(folder)
        contents = [path.read_bytes() for path in sorted(folder.iterdir())]
    return [bytes([place + half]) + content for place, content in enumerate(contents) for half in (0, 128)]


JSON_WORDS = ("[", "]", "{", "}", "null", "true", "1e999", "-1", "NaN", "9" * 30, '"a":', "\\ud800")
TARGETS = {
    "smiles": Target(
        _smiles,
        _smiles_seeds,
        (
            *("[C@H]", "[C@@]", "->", "<-", "%(", " |^1:0|", "[nH]", "[2H]", ":1]", "/C=C/", "c1ccccc1"),
            "[Fe+2]",
            "$",
        ),
    ),
    "table": Target(
        _table, _table_seeds, ("\r\n", '""', "\ufeff", "\0", "$$$$", "M  END", "PAR1", *JSON_WORDS), 1
    ),
    "model": Target(
        _model, _model_seeds, ("data_offsets", "dtype", "F32", "F64", "U8", "shape", *JSON_WORDS), 2
    ),
    "store": Target(_store, _store_seeds, ("'descr'", "'<i8'", "'|O'", "shape", "rows", *JSON_WORDS), 1),
}
