"""Convert connection tables, as in SD files, to SMILES."""

import io
import logging
import re

from rdkit import Chem, rdBase

from molslice.chem.smiles import ChemError, quiet_rdkit

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
        problems = [] if mol is None else Chem.DetectChemistryProblems(mol)
    reasons = [problem.Message().strip() for problem in problems[:3]] or _logged(text)[:1]
    return "RDKit cannot read the connection table" + (f": {'; '.join(reasons)}" if reasons else "")


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
