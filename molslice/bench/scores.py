"""The scores that the bubble plot draws against speed: a number for each attention, from a file."""

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from molslice.registry import near_names
from molslice.types import MolsliceError


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a file.

    Attributes:
        label: Label of the axis.
        values: Score by entry.
        source: Name of the file, for messages.
    """

    label: str
    values: dict[str, float]
    source: str

    def check(self, entries: Sequence[str]) -> None:
        """Check that at least one entry has a score.

        Raises:
            MolsliceError: None of the entries has a score.
        """
        if not set(entries) & self.values.keys():
            hint = near_names(entries[0], self.values)
            raise MolsliceError(f"{self.source} has no score for {', '.join(entries)}; {hint}")


def read_scores(path: Path | str) -> Scores:
    """Read a CSV file with the columns name and score, or a JSON object of scores by name.

    The first line of a CSV file is its header if the second column is not a number; it then names the axis.

    Raises:
        MolsliceError: The file cannot be read, a line has no finite number, or a name occurs twice.
    """
    source = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise MolsliceError(f"cannot read scores {source}: {error}") from error
    label, pairs = "score", (_read_json if source.endswith(".json") else _read_csv)(text, source)
    if pairs and not source.endswith(".json") and _number(pairs[0][1]) is None:
        (_, label), *pairs = pairs
    values: dict[str, float] = {}
    for name, score in pairs:
        if name in values:
            raise MolsliceError(f"{source}: {name!r} occurs twice")
        number = _number(score)
        if number is None:
            raise MolsliceError(f"{source}: the score of {name!r} is {score!r}, expected a number")
        values[name] = number
    if not values:
        raise MolsliceError(f"{source} has no scores")
    return Scores(str(label), values, source)


def _read_json(text: str, source: str) -> list[tuple[str, object]]:
    try:
        mapping = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MolsliceError(f"{source} is not JSON: {error}") from error
    if not isinstance(mapping, dict):
        raise MolsliceError(f"{source} is not a JSON object of scores by name")
    return list(mapping.items())


def _read_csv(text: str, source: str) -> list[tuple[str, object]]:
    rows = [row for row in csv.reader(io.StringIO(text)) if any(map(str.strip, row))]
    for row in rows:
        if len(row) != 2:
            raise MolsliceError(f"{source}: the line {','.join(row)!r} does not have two columns")
    return [(name.strip(), score.strip()) for name, score in rows]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
