"""A measured column of another table, as a user names it."""

import os
from typing import NamedTuple

from molslice.errors import MolsliceError
from molslice.files.urls import File, Url, as_file


class RelatedTarget(NamedTuple):
    """A column of another table."""

    file: File
    column: str

    @classmethod
    def parse(cls, text: str) -> "RelatedTarget":
        """Parse `FILE:COLUMN`, in which the file may have colons too.

        Raises:
            MolsliceError: There is no file or no column.
        """
        file, _, column = text.rpartition(":")
        if not file or not column.strip() or column.startswith(("/", "\\")):  # of a URL or a drive
            raise MolsliceError(f"a related target is FILE:COLUMN, got {text!r}")
        return cls(as_file(file), column.strip())

    @classmethod
    def of(cls, given: "str | tuple[File | str, str] | RelatedTarget") -> "RelatedTarget":
        """Return a related target from its text or from a pair of a file and a column.

        Raises:
            MolsliceError: It is neither.
        """
        if isinstance(given, str):
            return cls.parse(given)
        if isinstance(given, tuple) and len(given) == 2:
            file, column = given
            if isinstance(file, str | os.PathLike | Url) and isinstance(column, str) and column.strip():
                return cls(as_file(file), column.strip())
        raise MolsliceError(f"a related target is FILE:COLUMN, or a pair of both, got {given!r}")
