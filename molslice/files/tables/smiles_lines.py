"""Files of SMILES: one molecule on each line, then its name."""

import itertools
import re
from collections.abc import Iterator

from molslice.errors import MolsliceError
from molslice.files.lines import Opened, text_lines
from molslice.files.tables.base import Row, Table
from molslice.files.urls import File

LONGEST = 2**24  # maximum bytes of a line
SAMPLED_LINES = 20
SMILES, NAME = "smiles", "name"
_LINE = re.compile(r"(\S*(?:[ \t]+\|[^|]*\|)?)[ \t]*(.*)", re.DOTALL)  # with a CXSMILES block


class SmilesLines(Table):
    """The lines of a file of SMILES, with a column `name` if one of the first lines has a name.

    A first line that begins with the word `smiles` names the columns. A blank line is a row with an empty
    SMILES, except at the end of the file. So is a line that begins with a tab; its name follows. An empty
    file has no columns.
    """

    format = "SMILES on each line"

    def __init__(self, path: File, opened: Opened) -> None:
        super().__init__(path, opened)
        lines = self._lines(opened)
        first = list(itertools.islice(lines, SAMPLED_LINES))
        header = first[0][1].split() if first else []
        if not first:
            self.names = []
        elif header and header[0].lower() == SMILES:
            del first[0]
            self.names = [header[0], *([" ".join(header[1:])] if header[1:] else [])]
        else:
            named = any(_split(line)[1] for _, line in first)
            self.names = [SMILES, NAME] if named else [SMILES]
        self.rows = (self._row(number, line) for number, line in itertools.chain(first, lines))

    def _row(self, number: int, line: str) -> Row:
        cells = _split(line) if len(self.names) > 1 else ["" if line.startswith("\t") else line.strip()]
        return Row(cells, number, "contains a NUL character" if "\0" in line else None)

    def _lines(self, opened: Opened) -> Iterator[tuple[int, str]]:
        """Yield the lines with their numbers, without those that are blank at the end of the file."""
        blank: list[tuple[int, str]] = []
        for number, line in enumerate(text_lines(opened, self.path, LONGEST), start=1):
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                byte = f"byte 0x{line[error.start]:02x}"
                raise MolsliceError(f"{self.path}, line {number}: {byte} is not UTF-8") from error
            if not text.strip():
                blank.append((number, ""))
                continue
            yield from blank
            blank.clear()
            yield number, text


def _split(line: str) -> list[str]:
    """Return the SMILES and the name of a line; the name may be empty."""
    match = _LINE.match(line.rstrip().lstrip(" "))
    assert match is not None  # it also matches an empty line
    return [match[1], match[2]]
