"""ListOps: nested lists of operators and digits, and their value, a digit."""

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from molslice.data.sequences import SequenceDataset, Sequences, keep_arrays, pack_reasons, unpack_reasons
from molslice.data.splits import (
    DEFAULT_FRACTIONS,
    NAMES,
    Division,
    check_counts,
    checked_seed,
    consecutive_rows,
)
from molslice.data.synthetic.listops_rule import NUMBERS, SYMBOLS, ListOpsRule, evaluate, generate
from molslice.files import cache, lines
from molslice.files.progress import tracked
from molslice.types import DataSpec, MolsliceError

FILES = {"train": "basic_train.tsv", "valid": "basic_val.tsv", "test": "basic_test.tsv"}
HEADER = "Source\tTarget"
CLASSES = tuple("0123456789")
MAX_LENGTH = 2000
Row = tuple[np.ndarray, float, str]  # token ids, label, and the reason of an unreadable row or ""


class Listops(SequenceDataset):
    """Long Range Arena's ListOps, generated or read from files.

    Without `root` and `path`, expressions are generated deterministically from the options, and cached. In
    files, plain or gzip, parentheses are ignored and labels are checked. An unreadable row, or one with a
    wrong label, keeps its row number without tokens.

    Args:
        root: Folder of the arena's files basic_train.tsv, basic_val.tsv and basic_test.tsv: a header, then
            expression and digit separated by a tab.
        path: One file in the format of the arena or of Nangia and Bowman (digit, tab, expression). A tenth of
            its rows, drawn with `seed`, is valid and a tenth is test.
        test_path: Test file, with `path`. A tenth of `path` is then valid and the rest train.
        min_length: Generated expressions have more symbols than this.
        max_length: Generated expressions have fewer symbols than this.
        max_depth: Maximum nesting depth of generated expressions, counting digits as a level.
        max_args: Maximum number of arguments of an operator.
        counts: Number of generated rows of train, valid and test.
        seed: Seed of the generator or the split.
        max_tokens: Maximum number of tokens; longer expressions are truncated. By default unlimited.
        cache_dir: Folder for the rows; by default the user's cache.

    Source: Nangia and Bowman 2018, arXiv 1804.06028. Lengths, depth and splits as in Long Range Arena
    (Tay et al. 2020, arXiv 2011.04006, section 2.2.1). The arena's first input pipeline dropped the closing
    brackets (corrected in its commit c209b2a); here they are kept.
    """

    target_names, target_units, kind, class_names = ("value",), ("",), "multiclass", CLASSES
    row_name = "expressions"

    def __init__(
        self,
        *,
        root: str | os.PathLike[str] | None = None,
        path: str | os.PathLike[str] | None = None,
        test_path: str | os.PathLike[str] | None = None,
        min_length: int = 500,
        max_length: int = MAX_LENGTH,
        max_depth: int = 10,
        max_args: int = 10,
        counts: tuple[int, int, int] = (96_000, 2_000, 2_000),
        seed: int = 0,
        max_tokens: int | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        files = _chosen_files(root, path, test_path)
        checked_seed(seed)
        if max_tokens is not None and max_tokens < 1:
            raise MolsliceError(f"max_tokens must be at least 1, got {max_tokens}")
        folders = cache.cache_folders(cache_dir)
        if files:
            self.source = str(root or path)
            identity = {"format": "listops-1", "sha256": [cache.file_checksum(file) for file in files]}
            arrays = keep_arrays(folders, identity, lambda: _pack([_read(file) for file in files]))
        else:
            rule = ListOpsRule(min_length, max_length, max_depth, max_args)
            check_counts(counts)
            self.source = f"ListOps of {min_length} to {max_length} symbols"
            identity = {"format": "listops-rule-1", "rule": rule, "counts": list(counts), "seed": seed}
            arrays = keep_arrays(folders, identity, lambda: _pack(_made(rule, counts, seed)))
        whole = Sequences(arrays["values"], arrays["offsets"])
        self.labels = np.asarray(arrays["labels"])
        self._errors = unpack_reasons(arrays)
        if len(self._errors) == len(whole):
            first = self._errors.get(0, "it is empty")
            raise MolsliceError(f"no row of {self.source} is ListOps: {first}")
        given = NAMES if path is None else ("train", "test")
        parts = consecutive_rows(dict(zip(given, arrays["counts"].tolist(), strict=False)))
        self.splits = Division(DEFAULT_FRACTIONS, seed).divide(parts, self.source)
        if max_tokens is None:
            max_tokens = max_length if not files else int(whole.lengths.max())
        self._spec = _spec(max_tokens)
        self.sequences = whole.cut(max_tokens)

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> DataSpec | None:
        """Derive the spec from the lengths; None for files."""
        longest = options.get("max_tokens")
        if longest is None and (options.get("root") or options.get("path")) is not None:
            return None
        return _spec(options.get("max_length", MAX_LENGTH) if longest is None else longest)


def _spec(max_tokens: int) -> DataSpec:
    return DataSpec(len(CLASSES), "ids", len(SYMBOLS) + 1, max_tokens=max_tokens, vocabulary="listops-1")


def _chosen_files(
    root: str | os.PathLike[str] | None,
    path: str | os.PathLike[str] | None,
    test_path: str | os.PathLike[str] | None,
) -> list[Path]:
    if root is not None and path is not None:
        raise MolsliceError("root (a folder of three files) and path (one file) cannot be combined")
    if test_path is not None and path is None:
        raise MolsliceError("test_path needs path, the training file")
    if root is not None:
        return [lines.find_file(Path(root), name) for name in FILES.values()]
    return [Path(file) for file in (path, test_path) if file is not None]


def _pack(parts: Iterable[Iterable[Row]]) -> dict[str, np.ndarray]:
    sequences: list[np.ndarray] = []
    labels: list[float] = []
    reasons: dict[int, str] = {}
    counts: list[int] = []
    for rows in parts:
        before = len(labels)
        for numbers, label, reason in rows:
            if reason:
                reasons[len(labels)] = reason
            sequences.append(numbers)
            labels.append(label)
        counts.append(len(labels) - before)
    packed = Sequences.pack(sequences, np.uint8)
    return {
        "values": packed.values,
        "offsets": packed.offsets,
        "labels": np.array(labels, np.float32)[:, None],
        "counts": np.array(counts),
        **pack_reasons(reasons),
    }


def _made(rule: ListOpsRule, counts: tuple[int, ...], seed: int) -> Iterator[Iterator[Row]]:
    expressions = tracked(generate(rule, seed), "making expressions", sum(counts), "rows")
    for count in counts:
        chosen = itertools.islice(expressions, count)
        yield ((numbers, float(evaluate(numbers.tolist())), "") for numbers in chosen)


def _read(path: Path) -> Iterator[Row]:
    for number, line in enumerate(lines.read_lines(path), start=1):
        if number == 1 and line == HEADER:
            continue
        try:
            yield *_parse(line), ""
        except MolsliceError as error:
            yield np.zeros(0, np.uint8), float("nan"), f"{path.name}, line {number}: {error}"


def _parse(line: str) -> tuple[np.ndarray, float]:
    """Parse the token ids and the label of a line; raises for another format or a wrong label."""
    cells = line.split("\t")
    if len(cells) != 2 or not {*cells} & {*CLASSES}:
        raise MolsliceError(f"expected an expression and a digit separated by a tab, got {line[:60]!r}")
    label, expression = cells if cells[0] in CLASSES else reversed(cells)
    words = [word for word in expression.split() if word not in "()"]
    unknown = next((word for word in words if word not in NUMBERS), None)
    if unknown is not None:
        raise MolsliceError(f"invalid symbol {unknown!r}; choices: {' '.join(SYMBOLS)}")
    numbers = [NUMBERS[word] for word in words]
    value = evaluate(numbers)
    if value != int(label):
        raise MolsliceError(f"the expression evaluates to {value}, but the label is {label}")
    return np.array(numbers, np.uint8), float(value)
