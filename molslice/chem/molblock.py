"""Convert connection tables, as in SD files, to SMILES, and SMILES to records of SD files."""

import io
import logging
import re
from collections.abc import Mapping
from contextlib import suppress

from rdkit import Chem, rdBase
from rdkit.Chem import rdDepictor

from molslice.chem.smiles import ChemError, parse_unguarded, quiet_rdkit
from molslice.chem.syntax import chemistry_problems

_TIME = re.compile(r"^\[\d\d:\d\d:\d\d\]")
_HEADER_LINES = 4  # three of text, which may be empty, and the counts


def molblock_to_smiles(block: str) -> str:
    """Return the SMILES of a connection table, V2000 or V3000, up to `M  END`, with stereochemistry.

    Atoms and bonds of a query are written as `*` and `~`. Blank lines after the counts are skipped.

    Raises:
        ChemError: RDKit cannot read it, or it has no atoms. The message has RDKit's reason.
    """
    with quiet_rdkit():
        lines = block.splitlines()
        content = [line for line in lines[_HEADER_LINES:] if line.strip()]
        text = "\n".join([*lines[:_HEADER_LINES], *content, ""])
        mol = Chem.MolFromMolBlock(text, sanitize=True, removeHs=True)
    if mol is None:
        raise ChemError(_why_unreadable(text))
    with quiet_rdkit():
        if mol.GetNumAtoms() == 0:
            raise ChemError("molecule without atoms")
        if mol.GetNumConformers() and mol.GetConformer().Is3D():
            Chem.AssignStereochemistryFrom3D(mol)
        return Chem.MolToSmiles(mol)


def _why_unreadable(text: str) -> str:
    """Return RDKit's objection: to the chemistry, or to a line."""
    with quiet_rdkit():
        mol = Chem.MolFromMolBlock(text, sanitize=False)
        problems = "" if mol is None else chemistry_problems(mol)
    cause = problems or next(iter(_logged(text)), "")
    return "RDKit cannot read the connection table" + (f": {cause}" if cause else "")


def _logged(text: str) -> list[str]:
    """Return what RDKit logs about a connection table that it cannot read.

    RDKit has no other way to give the reason. Its log then goes to the streams of C++ again.
    """
    logger, written = logging.getLogger("rdkit"), io.StringIO()
    handlers, propagate = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = list[logging.Handler]([logging.StreamHandler(written)]), False
    rdBase.LogToPythonLogger()
    try:
        Chem.MolFromMolBlock(text)
    except (RuntimeError, ValueError):  # also logged
        pass
    finally:
        rdBase.LogToCppStreams()
        logger.handlers, logger.propagate = handlers, propagate
    lines = [_TIME.sub("", line).strip(" *-") for line in written.getvalue().splitlines()]
    return [line for line in lines if line and "Violation" not in line]


def sd_record(smiles: str, name: str, properties: Mapping[str, str]) -> str:
    """Return a record of an SD file, with coordinates in a plane.

    A SMILES that cannot be read gives a record without atoms. Texts become one line each, so that none ends
    the record.
    """
    mol = Chem.Mol()
    with suppress(ChemError), quiet_rdkit():
        read = parse_unguarded(smiles, as_written=True)
        rdDepictor.Compute2DCoords(read)
        mol = read
    block = Chem.MolToMolBlock(mol, kekulize=False)
    with suppress(ChemError), quiet_rdkit():
        block = Chem.MolToMolBlock(mol)
    _, _, structure = block.partition("\n")  # without the line of the name
    texts = (
        f"> <{re.sub('[<>]', '_', _one_line(column))}>\n{_one_line(text)}\n\n"
        for column, text in properties.items()
        if text.strip()
    )
    return f"{_one_line(name)}\n{structure}{''.join(texts)}$$$$\n"


def _one_line(text: str) -> str:
    """Return a text as one line that is no delimiter."""
    line = " ".join(text.split())
    return f" {line}" if line.startswith("$$$$") else line
