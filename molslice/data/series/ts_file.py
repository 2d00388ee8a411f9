"""Strict reader of the `.ts` format of the UEA and UCR archives; errors name the line.

A file has comments (# or %), a header of lines `@tag value`, and after `@data` one case per line: channels
separated by colons, their values separated by commas (`?` or NaN if missing), and last the class or the
target. Tags are case-insensitive.

aeon's own `load_from_ts_file` is not used. Importing it loads numba and scikit-learn and pins them and pandas
to older versions. It does not support compressed files or channels of different lengths in a case. It
converts class names to lower case, does not check classes against the header, and ignores misspelled tags. If
aeon is installed, a test compares this reader with it.

Source: aeon's page on the format (docs/api_reference/data_format.md of aeon 1.6), and the files it ships.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from molslice.files.lines import read_byte_lines
from molslice.registry import near_names
from molslice.types import MolsliceError

TAGS = (
    "classlabel",
    "data",
    "dimension",
    "dimensions",  # used by the archives' files for `dimension`
    "equallength",
    "missing",
    "problemname",
    "serieslength",
    "targetlabel",
    "timestamps",
    "univariate",
)
COMMENTS = ("#", "%")
MISSING = ("?", "nan")


@dataclass(frozen=True, slots=True, eq=False)
class TsFile:
    """Contents of a `.ts` file.

    Attributes:
        cases: float64 [n, channels] for each case; NaN for missing values and after the end of channels that
            are shorter than others of the case. n may be 0.
        classes: Names of the classes in the header; None without classes.
        regression: Whether the targets are numbers.
        targets: Class number or number to predict, float64 [cases]; NaN if unknown.
    """

    cases: list[np.ndarray]
    classes: tuple[str, ...] | None
    regression: bool
    targets: np.ndarray


class _Header(NamedTuple):
    """Values of the tags; None for a missing tag."""

    classes: tuple[str, ...] | None
    regression: bool | None
    univariate: bool | None
    channels: int | None
    equal_length: bool | None
    length: int | None


def read_ts_file(path: Path) -> TsFile:
    """Read a `.ts` file, plain or gzip.

    Channels and lengths must agree with the header; `@missing` is ignored. A file with time stamps is
    refused. Errors name file, line, channel and value.
    """
    lines = _numbered(path)
    header = _read_header(path, lines)
    labeled = header.classes is not None or header.regression
    cases: list[np.ndarray] = []
    targets: list[float] = []
    for number, line in lines:
        where = f"{path}, line {number}"
        *texts, label = line.split(":") if labeled else (*line.split(":"), "?")
        channels = [_read_channel(text, place, where) for place, text in enumerate(texts)]
        _check_shape(list(map(len, channels)), header, cases[0] if cases else None, where)
        cases.append(_as_array(channels, where))
        targets.append(_read_target(label.strip(), header, where))
    if not cases:
        raise MolsliceError(f"{path} has a header but no cases")
    return TsFile(cases, header.classes, bool(header.regression), np.array(targets))


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    """Yield lines that are not blank or comments, counted from 1; comments may be in any encoding."""
    for number, line in enumerate(read_byte_lines(path), start=1):
        text = line.decode("utf-8", "replace").strip()
        if not text or text.startswith(COMMENTS):
            continue
        if "\ufffd" in text:
            raise MolsliceError(f"{path}, line {number} is not UTF-8")
        yield number, text


def _read_header(path: Path, lines: Iterator[tuple[int, str]]) -> _Header:
    """Read the tags up to and including `@data`."""
    tags: dict[str, list[str]] = {}
    for number, line in lines:
        where = f"{path}, line {number}"
        tag, *values = line.split()
        name = tag[1:].lower()
        if not tag.startswith("@"):
            raise MolsliceError(f"{where}: expected a tag before @data, got {line[:40]!r}")
        if name not in TAGS:
            raise MolsliceError(f"{where}: unknown tag {tag!r}; {near_names(name, TAGS)}")
        if name in tags and name != "problemname":  # a file of aeon's has two names
            raise MolsliceError(f"{where}: duplicate tag {tag!r}")
        tags[name] = values
        if name == "data":
            break
    else:
        raise MolsliceError(f"{path} has no line @data: it is not a .ts file or truncated")
    if _truth(tags, "timestamps", path):
        raise MolsliceError(
            f"{path}: time stamps (@timestamps true) are not supported; write only the values"
        )
    regression, classes = _truth(tags, "targetlabel", path), _classes(tags.get("classlabel"), path)
    if regression and classes is not None:
        raise MolsliceError(f"{path}: both @classLabel and @targetLabel are given")
    if "targetlabel" not in tags and "classlabel" not in tags:
        raise MolsliceError(f"{path}: neither @classLabel nor @targetLabel is given")
    return _Header(
        classes,
        regression,
        univariate=_truth(tags, "univariate", path),
        channels=_number(tags, "dimension", path) or _number(tags, "dimensions", path),
        equal_length=_truth(tags, "equallength", path),
        length=_number(tags, "serieslength", path),
    )


def _classes(values: list[str] | None, where: Path) -> tuple[str, ...] | None:
    if values is None or [value.lower() for value in values] == ["false"]:
        return None
    truth, *classes = values or [""]
    if truth.lower() != "true" or not classes:
        given = " ".join(values)
        raise MolsliceError(
            f"{where}: invalid @classLabel {given!r}; expected false, or true and the classes"
        )
    if len(set(classes)) < len(classes):
        raise MolsliceError(f"{where}: duplicate class in @classLabel: {' '.join(classes)}")
    return tuple(classes)


def _truth(tags: dict[str, list[str]], name: str, where: Path) -> bool | None:
    if name not in tags:
        return None
    text = " ".join(tags[name]).lower()
    if text not in ("true", "false"):
        raise MolsliceError(f"{where}: invalid @{name} {text!r}; choices: true, false")
    return text == "true"


def _number(tags: dict[str, list[str]], name: str, where: Path) -> int | None:
    if name not in tags:
        return None
    text = " ".join(tags[name])
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise MolsliceError(f"{where}: invalid @{name} {text!r}; expected a positive integer")
    return int(text)


def _read_channel(text: str, place: int, where: str) -> list[float]:
    if not text or text.isspace():
        return []
    texts = text.split(",")
    if "?" not in text and "_" not in text:
        with suppress(ValueError):  # most channels are only numbers
            return [float(value) for value in texts]
    values = [value for value in map(_read_value, texts) if value is not None]
    if len(values) < len(texts):
        wrong = next(value for value in texts if _read_value(value) is None).strip()
        complaint = f"{wrong!r} is not a number" if wrong else "empty value; write ? for a missing one"
        raise MolsliceError(f"{_at(where, place)}: {complaint}")
    return values


def _read_value(text: str) -> float | None:
    """Read a value: NaN if it is missing, None if it is not a number."""
    if text.strip().lower() in MISSING:
        return float("nan")
    try:
        return None if "_" in text else float(text)  # float() takes 1_000 for a number
    except ValueError:
        return None


def _at(where: str, place: int) -> str:
    return f"{where}, channel {place} (counted from 0)"


def _check_shape(lengths: list[int], header: _Header, first: np.ndarray | None, where: str) -> None:
    """Check channels and lengths against the header, or against the first case."""
    count = len(lengths)
    if not count:
        raise MolsliceError(f"{where} has no colon: the values or the class (the target) are missing")
    wanted = header.channels or (1 if header.univariate else count if first is None else first.shape[1])
    if count != wanted:
        raise MolsliceError(f"{where} has {count} channels, expected {wanted} (class or target not counted)")
    if header.equal_length:
        length = header.length or (lengths[0] if first is None else len(first))
        for place, other in enumerate(lengths):
            if other != length:
                raise MolsliceError(
                    f"{_at(where, place)} has {other} values, expected {length}, as @equalLength is true"
                )


def _as_array(channels: list[list[float]], where: str) -> np.ndarray:
    """Convert to float64 [n, channels], n of the longest channel; NaN after the end of shorter ones."""
    case = np.full((max(map(len, channels)), len(channels)), np.nan)
    for place, values in enumerate(channels):
        case[: len(values), place] = values
    with np.errstate(over="ignore"):
        infinite = np.isinf(case.astype(np.float32))
    if infinite.any():
        step, place = np.argwhere(infinite)[0]
        raise MolsliceError(
            f"{_at(where, place)}: {case[step, place]:g} is infinite, or too large for 32-bit floating point"
        )
    return case


def _read_target(label: str, header: _Header, where: str) -> float:
    if label.lower() in MISSING:
        return float("nan")
    if header.classes is not None:
        if label not in header.classes:
            near = near_names(label, header.classes)
            raise MolsliceError(f"{where}: the class {label!r} is not one of the header's; {near}")
        return float(header.classes.index(label))
    value = _read_value(label)
    if value is None or not np.isfinite(value):
        raise MolsliceError(f"{where}: the target {label!r} is not a finite number")
    return value
