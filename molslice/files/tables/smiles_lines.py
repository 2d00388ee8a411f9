"""Files of SMILES: one molecule on each line, then its name."""

import re
from collections.abc import Iterator
from pathlib import Path

from molslice.files.lines import BYTE_ORDER_MARK, READ_FAULTS, Opened, read_error, read_fault
from molslice.files.tables.base import Row, Table
from molslice.types import MolsliceError

__all__ = ["SmilesLines"]

LONGEST = 2**24  # maximum bytes of a line
SAMPLED_LINES = 20
SMILES, NAME = "smiles", "name"
_LINE = re.compile(r"(\S*(?:[ \t]+\|[^|]*\|)?)[ \t]*(.*)", re.DOTALL)  # with a CXSMILES block


class SmilesLines(Table):
    """The lines of a file of SMILES, with a column `name` if one of the first lines has a name.

    A first line that begins with the word `smiles` names the columns. A blank line is a row with an empty
    SMILES, except at the end of the file.

    Args:
        path: The file, for messages.
        opened: The open file.

    Raises:
        MolsliceError: The file is empty or damaged.
    """

    format = "SMILES on each line"

    def __init__(self, path: Path, opened: Opened) -> None:
        super().__init__(path)
        self._opened = opened
        self._number, self._data = 0, self._read_lines()
        self._ahead = [line for _, line in zip(range(SAMPLED_LINES), self._data, strict=False)]
        if not any(line.strip() for line in self._ahead):
            raise MolsliceError(f"{path} is empty")
        header = self._ahead[0].split()
        if header and header[0].lower() == SMILES:
            self._ahead = self._ahead[1:]
            self._number = 1
            self.names = [header[0], *([" ".join(header[1:])] if header[1:] else [])]
        else:
            named = any(_split(line)[1] for line in self._ahead)
            self.names = [SMILES, NAME] if named else [SMILES]

    @property
    def position(self) -> int:
        """Number of bytes of the file read so far, for progress bars."""
        return self._opened.position

    def read_rows(self, size: int) -> list[Row]:
        """Read the next rows, at most `size`; an empty list at the end.

        Raises:
            MolsliceError: The file is damaged.
        """
        rows: list[Row] = []
        while len(rows) < size:
            line = self._ahead.pop(0) if self._ahead else next(self._data, None)
            if line is None:
                break
            self._number += 1
            cells = _split(line) if len(self.names) > 1 else [line.strip()]
            error = "contains a NUL character" if "\0" in line else None
            rows.append(Row(cells, self._number, error))
        return rows

    def _read_lines(self) -> Iterator[str]:
        """Yield the lines without those that are blank at the end of the file."""
        content, number, blank = self._opened.content, 0, 0
        try:
            for number, line in enumerate(iter(lambda: content.readline(LONGEST + 1), b""), start=1):
                if len(line) > LONGEST:
                    raise MolsliceError(f"{self.path}, line {number}: a line of more than {LONGEST:,} bytes")
                text = self._decode(line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line, number)
                if not text.strip():
                    blank += 1
                    continue
                for _ in range(blank):
                    yield ""
                blank = 0
                yield text
        except READ_FAULTS as error:
            raise read_error(self.path, number, read_fault(error)) from error

    def _decode(self, line: bytes, number: int) -> str:
        try:
            return line.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            byte = line[error.start]
            raise MolsliceError(f"{self.path}, line {number}: byte 0x{byte:02x} is not UTF-8") from error


def _split(line: str) -> list[str]:
    """Return the SMILES and the name of a line; the name may be empty."""
    match = _LINE.match(line.strip())
    assert match is not None  # it also matches an empty line
    return [match[1], match[2]]
