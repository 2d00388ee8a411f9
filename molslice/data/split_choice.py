"""The option `split` of the configuration of a data set."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from molslice.data.splits import DEFAULT_FRACTIONS, NAMES, Division, check_fractions
from molslice.registry import check_choice, near_names
from molslice.types import MolsliceError

OPTIONS = {
    "random": ("fractions", "seed"),
    "scaffold": ("fractions",),
    "column": ("column", "valid_fraction"),
}


@dataclass(frozen=True, slots=True)
class SplitChoice:
    """The option `split` of a configuration.

    Attributes:
        kind: `random`, `scaffold`, `column`, or `files` (each file is a split).
        division: Fractions and seed; for `column`, the fraction of valid if the column names no valid row.
        column: Name of the column with the split of each row, for `column`.
    """

    kind: str
    division: Division = field(default_factory=Division)
    column: str | None = None


def checked_choice(split: str | Mapping[str, Any] | None, files: Collection[str]) -> SplitChoice:
    """Check the option `split` of a configuration.

    Args:
        split: Name of the kind, or a mapping with `kind` and its options.
        files: Names of the splits that have their own file.
    """
    if "valid" in files:
        if split is not None:
            raise MolsliceError("split cannot be used with valid_path, which already divides the rows")
        return SplitChoice("files")
    choice: dict[str, Any] = dict(split) if isinstance(split, Mapping) else {"kind": split or "random"}
    kind = choice.pop("kind", "random")
    check_choice("split", kind, OPTIONS)
    for option in choice:
        if option not in OPTIONS[kind]:
            raise MolsliceError(
                f"split {kind!r} has no option {option!r}; {near_names(str(option), OPTIONS[kind])}"
            )
    if kind == "column":
        return _by_column(choice, files)
    names = [name for name in NAMES if name not in files or name == "train"]
    return SplitChoice(kind, Division(_fractions(choice.get("fractions"), names), choice.get("seed", 0)))


def _by_column(choice: Mapping[str, Any], files: Collection[str]) -> SplitChoice:
    column, fraction = choice.get("column"), choice.get("valid_fraction", DEFAULT_FRACTIONS["valid"])
    if not isinstance(column, str):
        raise MolsliceError(f"a split by column needs the option column, a column name; got {column!r}")
    if "test" in files:
        raise MolsliceError("a split by column cannot be combined with test_path")
    return SplitChoice("column", Division({} if fraction == 0 else {"valid": fraction}), column)


def _fractions(given: object, names: Sequence[str]) -> dict[str, float]:
    if given is None:
        total = 1 - sum(DEFAULT_FRACTIONS[name] for name in NAMES[1:] if name not in names)
        return {name: DEFAULT_FRACTIONS[name] / total for name in names if name != "train"}
    if isinstance(given, Mapping) and set(given) <= set(names):
        fractions = {name: given.get(name, 0.0) for name in names}
    elif isinstance(given, Sequence) and not isinstance(given, str) and len(given) == len(names):
        fractions = dict(zip(names, given, strict=True))
    else:
        raise MolsliceError(f"split fractions must be given for {', '.join(names)}, got {given!r}")
    check_fractions(fractions)
    return {name: fraction for name, fraction in fractions.items() if fraction}
