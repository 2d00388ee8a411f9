r"""Parse SMILES from users to RDKit molecules.

RDKit parses a part of some texts and drops the rest silently: non-ASCII and control characters at both ends,
everything after a blank (a name) or a newline, and the high bits of a charge or an isotope. It needs minutes
for some short texts, and overflows its stack on others. All of these are refused here before RDKit parses
them, so that every version of RDKit accepts the same texts.
"""

import math
import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager

from rdkit import Chem, rdBase

from molslice.chem.hydrogens import HYDROGEN, LABELED, parse_joined
from molslice.chem.syntax import chemistry_problems, syntax_error
from molslice.errors import MolsliceError

HARD_MAX_ATOMS = 256  # the atoms of a bond are stored as bytes
MAX_CHARACTERS = 100_000
MAX_PARSED_ATOMS = 4 * HARD_MAX_ATOMS  # including hydrogens written as atoms
MAX_RINGS = 129  # the rings of a fullerene of 256 atoms; RDKit's time for rings grows steeply
MAX_CHARGE = 127  # RDKit stores a charge in one signed byte
MAX_ISOTOPE = 65_535  # RDKit stores an isotope in two bytes
INCHI, MAX_INCHI_CHARACTERS = "InChI=", 10_000
BLANKS = " \t\r\n"

_BODY = re.compile(r"[!-~]*")  # the printable ASCII characters
_NUMBERS = re.compile(r"\[(\d{5,})|\[[^\[\]]*[+-](\d{3,})")
_ATOM = re.compile(r"\[[^\[\]]*\]|Br|Cl|[BCNOPSFIbcnops*]")
_RING_CLOSURE = re.compile(r"%\(\d+\)|%\d\d|\d")


class ChemError(MolsliceError):
    """Error for a SMILES that cannot be converted to a molecular graph; the message is the reason."""


def parse_smiles(smiles: object, max_atoms: int = HARD_MAX_ATOMS, *, as_written: bool = False) -> Chem.Mol:
    """Parse one SMILES. RDKit's log is silenced.

    Args:
        smiles: A SMILES. Blanks around it and a CXSMILES block (`CC |^1:0|`) after it are allowed. An InChI
            is converted to a SMILES.
        max_atoms: Maximum number of atoms without implicit hydrogens.
        as_written: Whether isotopes, and hydrogens that RDKit keeps as atoms, stay as they are, as in OGB;
            otherwise see `molslice.chem.hydrogens`.

    Raises:
        ChemError: The SMILES is not a string, is empty or invalid, has no atoms or too many, or RDKit would
            drop a part of the text.
    """
    with quiet_rdkit():
        return parse_unguarded(smiles, max_atoms, as_written=as_written)


def parse_unguarded(smiles: object, max_atoms: int = HARD_MAX_ATOMS, *, as_written: bool = False) -> Chem.Mol:
    """Parse one SMILES inside of a `quiet_rdkit` block; otherwise like `parse_smiles`.

    Entering the block takes 2% of the time of a molecule, so one block can enclose many molecules.

    Raises:
        ChemError: As in `parse_smiles`.
    """
    text = _checked(_without_inchi(smiles), max_atoms)
    joins = not as_written and LABELED.search(text)
    mol = parse_joined(text) if joins else Chem.MolFromSmiles(text)
    if mol is None:
        raise ChemError(_why_unreadable(text))
    if mol.GetNumAtoms() == 0:
        raise ChemError("molecule without atoms")
    if mol.GetNumAtoms() > max_atoms:
        raise ChemError(f"{mol.GetNumAtoms()} atoms, more than max_atoms={max_atoms}")
    return mol


def _without_inchi(smiles: object) -> object:
    """Convert an InChI to a SMILES; anything else stays as it is."""
    if not isinstance(smiles, str) or not (text := smiles.strip(BLANKS)).startswith(INCHI):
        return smiles
    if len(text) > MAX_INCHI_CHARACTERS:
        raise ChemError(f"InChI of {len(text)} characters, more than {MAX_INCHI_CHARACTERS}")
    if not _BODY.fullmatch(text):
        raise ChemError("invalid character in the InChI")
    mol = Chem.MolFromInchi(text)
    if mol is None:
        raise ChemError("not a valid InChI, or RDKit cannot sanitize its molecule")
    return Chem.MolToSmiles(mol)


@contextmanager
def quiet_rdkit() -> Iterator[None]:
    """Silence RDKit's log and convert its exceptions to `ChemError`.

    Raises:
        ChemError: RDKit failed, because of a broken invariant or because it cannot sanitize a molecule.
    """
    with rdBase.BlockLogs():
        try:
            yield
        except ChemError:
            raise
        except (RuntimeError, ValueError) as error:
            raise ChemError(rdkit_reason(error)) from error


def rdkit_reason(error: Exception) -> str:
    """Describe an exception of RDKit in one line."""
    return f"RDKit cannot read it: {(str(error).strip().splitlines() or [type(error).__name__])[0]}"


def drop_atom_maps(mol: Chem.Mol) -> bool:
    """Remove the atom-map numbers in place; returns whether the molecule had any."""
    mapped = [atom for atom in mol.GetAtoms() if atom.GetAtomMapNum()]
    for atom in mapped:
        atom.SetAtomMapNum(0)
    return bool(mapped)


def parse_without_maps(smiles: str) -> Chem.Mol:
    """Parse one SMILES of any size and drop its atom-map numbers, inside of a `quiet_rdkit` block.

    Raises:
        ChemError: As in `parse_smiles`.
    """
    mol = parse_unguarded(smiles, MAX_PARSED_ATOMS)
    if drop_atom_maps(mol):
        # parsing again removes stereo that exists only because of the map numbers
        mol = parse_unguarded(Chem.MolToSmiles(mol), MAX_PARSED_ATOMS)
    return mol


def _checked(smiles: object, max_atoms: int) -> str:
    """Return the text to parse, without blanks at its ends."""
    if smiles is None or (isinstance(smiles, float) and math.isnan(smiles)):
        raise ChemError("no SMILES given")
    if not isinstance(smiles, str):
        raise ChemError(f"not a string but {type(smiles).__name__}")
    text = smiles.strip(BLANKS)
    if not text:
        raise ChemError("empty SMILES")
    if len(text) > MAX_CHARACTERS:
        raise ChemError(f"SMILES of {len(text)} characters, more than {MAX_CHARACTERS}")
    body = _BODY.match(text).group()  # type: ignore[union-attr]  # it also matches an empty text
    if len(body) < len(text):
        _refuse_what_would_be_dropped(text, body)
    for isotope, charge in _NUMBERS.findall(body):
        if int(isotope or 0) > MAX_ISOTOPE:
            raise ChemError(f"isotope {isotope} is above {MAX_ISOTOPE}")
        if int(charge or 0) > MAX_CHARGE:
            raise ChemError(f"charge of {charge} is beyond {MAX_CHARGE}")
    if len(body) > HARD_MAX_ATOMS:
        _refuse_large(body, max_atoms)
    return text


def _refuse_what_would_be_dropped(text: str, body: str) -> None:
    """Refuse any text after the SMILES except blanks and one CXSMILES block."""
    rest = text[len(body) :]
    block = rest.lstrip(" \t")
    start = len(text) - len(block)
    if block[0] == rest[0]:
        invalid = start
    else:
        invalid = next((i for i in range(start, len(text)) if not text[i].isprintable()), None)
    if invalid is not None:
        raise ChemError(f"invalid character {_name(text[invalid])} at position {invalid + 1}")
    if not (len(block) > 1 and block[0] == block[-1] == "|" and block.count("|") == 2):
        more = f" and {len(block) - 40:,} more characters" if len(block) > 40 else ""
        raise ChemError(f"text after the SMILES: {block[:40]!r}{more}; give the SMILES alone")


def _name(character: str) -> str:
    """Return the Unicode name of a character, because many characters are invisible."""
    names = {"\0": "null character", "\t": "tab", "\n": "newline", "\r": "carriage return"}
    kinds = {"Cc": "control character", "Cs": "unpaired surrogate", "Co": "private use character"}
    kind = kinds.get(unicodedata.category(character), "unassigned character")
    return f"U+{ord(character):04X} ({names.get(character) or unicodedata.name(character, kind)})"


def _refuse_large(body: str, max_atoms: int) -> None:
    """Count atoms and rings in the text, because RDKit's time grows at least with their square."""
    atoms = _ATOM.findall(body)
    hydrogens = sum(1 for atom in atoms if HYDROGEN.match(atom))
    if len(atoms) - hydrogens > max_atoms:
        raise ChemError(f"{len(atoms) - hydrogens} atoms, more than max_atoms={max_atoms}")
    if len(atoms) > MAX_PARSED_ATOMS:
        raise ChemError(f"{len(atoms)} atoms with hydrogens, more than {MAX_PARSED_ATOMS}")
    closures = len(_RING_CLOSURE.findall(_ATOM.sub("", body))) // 2
    if closures > MAX_RINGS:
        raise ChemError(f"{closures} rings, more than {MAX_RINGS}")


def _why_unreadable(smiles: str) -> str:
    """Return why RDKit cannot read a SMILES: its syntax, or the chemistry of a graph with valid syntax."""
    lenient = Chem.SmilesParserParams()
    lenient.sanitize = False
    lenient.removeHs = False
    lenient.strictCXSMILES = False
    mol = Chem.MolFromSmiles(smiles, lenient)
    if mol is None:
        cause = syntax_error(smiles.partition(" ")[0].partition("\t")[0])
        return f"not valid SMILES: {cause}" if cause else "not valid SMILES"
    if problems := chemistry_problems(mol):
        return f"not valid SMILES: {problems}"
    return "invalid CXSMILES block" if "|" in smiles else "RDKit cannot sanitize it"


def mol_to_smiles(mol: Chem.Mol) -> str:
    """Return the SMILES of an RDKit molecule, with chirality, charges, isotopes and atom-map numbers.

    Coordinates and properties are not used. Hydrogens that are atoms of their own stay in the SMILES, and the
    parser makes them implicit.

    Raises:
        ChemError: The molecule is not sanitized, is a query, or has no atoms. The message is the reason.
    """
    if mol.GetNumAtoms() == 0:
        raise ChemError("molecule without atoms")
    if any(atom.HasQuery() for atom in mol.GetAtoms()):
        raise ChemError("the RDKit molecule is a query (SMARTS), which has no SMILES")
    try:
        with quiet_rdkit():
            mol.GetRingInfo().NumRings()  # fails if the rings are unknown
    except ChemError:
        is_sanitized = False
    else:
        is_sanitized = not mol.NeedsUpdatePropertyCache()
    if not is_sanitized:
        raise ChemError("the RDKit molecule is not sanitized; call Chem.SanitizeMol")
    with quiet_rdkit():
        return Chem.MolToSmiles(mol)
