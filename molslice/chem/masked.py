"""Molecules in which some atoms are replaced by carbon."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from rdkit import Chem

from molslice.chem.saturated import CARBON, VALENCE
from molslice.chem.smiles import ChemError, drop_atom_maps, parse_smiles, quiet_rdkit

SINGLE, DATIVE = Chem.BondType.SINGLE, Chem.BondType.DATIVE
MULTIPLE = (Chem.BondType.DOUBLE, Chem.BondType.TRIPLE)


class MaskableMolecule:
    """A molecule whose atoms can be masked, in groups.

    A masked atom is a carbon with single bonds and the hydrogens that it needs. A bond keeps its type while
    both of its atoms are visible, and a visible atom gets the hydrogens that it needs. With all atoms masked,
    the result is the saturated hydrocarbon with the skeleton of the molecule.

    Masked together are atoms joined by double or triple bonds, neighbors with opposite charges, and the
    carbons of an aromatic ring or of fused ones, except for carbons with a double bond out of the ring. An
    aromatic ring whose carbons are masked is saturated. Its other atoms are then masked too, so that a
    pyridine does not become an amine. In a ring that stays aromatic, a masked atom is an aromatic carbon if
    that makes a molecule: pyridine becomes benzene, but furan becomes cyclopentane.

    A saturated carbon is never masked, because nothing would change. An atom that carbon cannot replace is
    never masked either: one with more than four neighbors, or with a dative bond from a neighbor.

    Args:
        smiles: The molecule.

    Attributes:
        num_atoms: Number of atoms n, in the order of the SMILES.
        groups: The atoms of each of m groups.

    Raises:
        ChemError: As in `parse_smiles`.
    """

    def __init__(self, smiles: str) -> None:
        self._mol = parse_smiles(smiles)
        self.num_atoms = self._mol.GetNumAtoms()
        drop_atom_maps(self._mol)
        aromatic = [*self._mol.GetAromaticAtoms()]
        self._carbons = {atom.GetIdx() for atom in aromatic if atom.GetAtomicNum() == CARBON}
        self._others = {atom.GetIdx() for atom in aromatic} - self._carbons
        self._rings = [*self._aromatic_rings()]
        self.groups = tuple(self._find_groups())

    def masked(self, visible: np.ndarray) -> str:
        """Return the SMILES with the groups masked that are False in `visible`, bool [m].

        Raises:
            ChemError: RDKit cannot read the result.
        """
        masked = {
            atom for group, shown in zip(self.groups, visible, strict=True) if not shown for atom in group
        }
        if not masked:
            return Chem.MolToSmiles(self._mol)
        for needed in (self._carbons, self._carbons | self._others):
            try:
                return self._masked(masked, [ring for ring in self._rings if not ring & needed & masked])
            except ChemError:  # the rings cannot be aromatic with these atoms, or one without another
                continue
        return self._masked(masked, [])

    def name(self, group: Sequence[int]) -> str:
        """Return a SMILES of a group with what it is bonded to; for the carbons of a ring, the whole ring.

        Chlorine of a chlorobenzene is `cCl`, and nitrogen of an amide `CNC=O`. A stereocenter is "".
        """
        atoms, bonds = {*group}, [(bond.GetBondType(), {*_ends(bond)}) for bond in self._mol.GetBonds()]
        if atoms <= self._carbons:
            atoms = atoms.union(*(ring for ring in self._rings if ring & atoms))
        elif all(map(self._is_stereo_center, group)):
            return ""
        else:
            atoms = atoms.union(*(ends for _, ends in bonds if ends & atoms))
            atoms = atoms.union(*(ends for kind, ends in bonds if kind in MULTIPLE and ends & atoms))
        return Chem.MolFragmentToSmiles(self._mol, sorted(atoms), isomericSmiles=False)

    def _is_stereo_center(self, place: int) -> bool:
        atom = self._mol.GetAtomWithIdx(place)
        is_carbon = atom.GetAtomicNum() == CARBON and not atom.GetFormalCharge()
        return is_carbon and all(bond.GetBondType() == SINGLE for bond in atom.GetBonds())

    def _masked(self, masked: set[int], rings: list[set[int]]) -> str:
        mol, aromatic = Chem.RWMol(self._mol), set().union(*rings)
        outside = self._others - aromatic
        masked = masked.union(*(group for group in self.groups if outside & {*group}))
        changed = set(masked)
        for bond in mol.GetBonds():
            ends = {*_ends(bond)}
            keeps = any(ends <= ring for ring in rings) if bond.GetIsAromatic() else not ends & masked
            if not keeps and bond.GetBondType() != SINGLE:
                bond.SetStereo(Chem.BondStereo.STEREONONE)
                bond.SetBondType(SINGLE)
                bond.SetIsAromatic(False)
                changed |= ends
        for place in changed:
            atom = mol.GetAtomWithIdx(place)
            atom.SetIsAromatic(place in aromatic)
            atom.SetNoImplicit(False)
            atom.SetNumExplicitHs(0)
            if place in masked:
                atom.SetAtomicNum(CARBON)
                atom.SetFormalCharge(0)
                atom.SetNumRadicalElectrons(0)
                atom.SetChiralTag(Chem.ChiralType.CHI_UNSPECIFIED)
        with quiet_rdkit():
            Chem.SanitizeMol(mol)
            Chem.AssignStereochemistry(mol, cleanIt=True, force=True)
            return Chem.MolToSmiles(mol)

    def _aromatic_rings(self) -> Iterator[set[int]]:
        """Yield the atoms of each aromatic ring, then the atoms of systems that are aromatic as a whole."""
        mol, covered = self._mol, set()
        rings = mol.GetRingInfo()
        for atoms, bonds in zip(rings.AtomRings(), rings.BondRings(), strict=True):
            if all(mol.GetBondWithIdx(bond).GetIsAromatic() for bond in bonds):
                covered.update(bonds)
                yield set(atoms)
        aromatic = [bond for bond in mol.GetBonds() if bond.GetIsAromatic()]
        systems = _joined(mol.GetNumAtoms(), map(_ends, aromatic))
        for system in {systems[bond.GetBeginAtomIdx()] for bond in aromatic if bond.GetIdx() not in covered}:
            yield {atom for atom, other in enumerate(systems) if other == system}

    def _find_groups(self) -> list[list[int]]:
        bonds = [*self._mol.GetBonds()]
        fixed = {bond.GetEndAtomIdx() for bond in bonds if bond.GetBondType() == DATIVE}
        multiple = [_ends(bond) for bond in bonds if bond.GetBondType() in MULTIPLE]
        charged = [
            _ends(bond)
            for bond in bonds
            if bond.GetBeginAtom().GetFormalCharge() * bond.GetEndAtom().GetFormalCharge() < 0
        ]
        carbons = self._carbons.difference(*multiple)
        in_rings = [pair for ring in self._rings for pair in itertools.pairwise(ring & carbons)]
        group_of = _joined(self.num_atoms, [*multiple, *charged, *in_rings])
        groups: dict[int, list[int]] = {}
        for atom, group in zip(self._mol.GetAtoms(), group_of, strict=True):
            if atom.GetIdx() not in fixed and atom.GetDegree() <= VALENCE and _differs(atom):
                groups.setdefault(group, []).append(atom.GetIdx())
        return [*groups.values()]


def _ends(bond: Chem.Bond) -> tuple[int, int]:
    return bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()


def _joined(atoms: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Return a number for each atom, equal for atoms that pairs join directly or indirectly."""
    numbers = list(range(atoms))
    for one, two in pairs:
        old, new = numbers[one], numbers[two]
        numbers = [new if number == old else number for number in numbers]
    return numbers


def _differs(atom: Chem.Atom) -> bool:
    """Return whether an atom is something else than a saturated carbon."""
    return bool(
        atom.GetAtomicNum() != CARBON
        or atom.GetFormalCharge()
        or atom.GetNumRadicalElectrons()
        or atom.GetChiralTag() != Chem.ChiralType.CHI_UNSPECIFIED
        or any(bond.GetBondType() != SINGLE for bond in atom.GetBonds())
    )
