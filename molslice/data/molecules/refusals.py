"""Counts of failed rows by kind of reason, with examples."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from molslice.types import MolsliceError

EXAMPLES = 3  # of each kind of reason
KINDS = 50  # of reasons; further ones are counted together
OTHER = "other reasons"
SHOWN = 100  # characters of a SMILES
# what differs between two reasons of one kind
_SPECIFIC = re.compile(r"'[^']*'|\"[^\"]*\"|U\+[0-9A-F]+ \([^)]*\)|\d[\d ]*(?<! )")


def kind_of_reason(reason: str) -> str:
    """Return the first part of a reason, with `…` in place of numbers and quoted texts."""
    return _SPECIFIC.sub("…", reason).partition("; ")[0].replace("… cell,", "… cells,")


def shortened(smiles: str) -> str:
    """Return the first characters of a SMILES, for messages."""
    return smiles[:SHOWN] + "…" * (len(smiles) > SHOWN)


def failure_text(where: str, smiles: str, reason: str) -> str:
    """Describe a failed row in one line: its place, its SMILES if there is one, and the reason."""
    return f"{where}: {shortened(smiles)!r}: {reason}" if smiles else f"{where}: {reason}"


class Refusals:
    """Number and examples of failed rows by kind of reason. Its size does not depend on the number of rows.

    `saved` is an earlier `kinds`; None starts without rows.

    Attributes:
        kinds: The `count` and the `examples` of each kind, in the order in which they appeared. An example
            has `where`, `smiles` and `reason`.
    """

    def __init__(self, saved: Mapping[str, dict[str, Any]] | None = None) -> None:
        self.kinds: dict[str, dict[str, Any]] = dict(saved or {})

    def add(self, reason: str, smiles: str, where: str) -> None:
        """Count a row with its reason, its SMILES (empty if unknown), and its place for messages."""
        example = {"where": where, "smiles": shortened(smiles), "reason": reason}
        self._add(kind_of_reason(reason), 1, [example])

    def merge(self, report: Iterable[Mapping[str, Any]]) -> None:
        """Add the rows of another `report`."""
        for kind in report:
            self._add(kind["reason"], kind["count"], kind["examples"])

    def _add(self, kind: str, count: int, examples: list[dict[str, str]]) -> None:
        if kind not in self.kinds and len(self.kinds) >= KINDS:
            kind = OTHER
        counted = self.kinds.setdefault(kind, {"count": 0, "examples": []})
        counted["count"] += count
        counted["examples"] += examples[: EXAMPLES - len(counted["examples"])]

    def report(self) -> list[dict[str, Any]]:
        """Return `reason`, `count` and `examples` of each kind, by decreasing number."""
        kinds = sorted(self.kinds.items(), key=lambda item: -item[1]["count"])
        return [{"reason": kind, **counted} for kind, counted in kinds]


def check_all_read(refusals: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Refuse a folder with rows that failed in an earlier run, as `Refusals.report` returns them."""
    if refusals:
        first = failure_text(**refusals[0]["examples"][0])
        raise MolsliceError(f"{folder} has rows that failed without --strict; {first}")
