"""SMILES of more or less than one molecule: mixtures and salts, wildcards and R-groups.

The atoms A, Q, X, M, R and R#, lists of atoms, and the query bonds of a connection table are written as `*`
and `~` in its SMILES; see `molslice.chem.molblock`.
"""

from collections import Counter

from rdkit import Chem

from molslice.chem.smiles import INCHI, ChemError, parse_smiles, parse_without_maps, quiet_rdkit

_KEEP = "; keep such rows with --wildcards keep (data.wildcards: keep)"


def choose_fragment(smiles: str, choice: str) -> str:
    """Keep a mixture, replace it by its `largest` molecule, or `refuse` it.

    A mixture is a SMILES of several molecules without a bond between them, such as a salt. The largest is the
    one with the most heavy atoms. Of those with equally many it is the heaviest, and of equally heavy ones
    that with the first canonical SMILES in alphabetical order. Charges are not changed: acetate stays an
    anion without its counterion.

    Returns:
        The SMILES of the largest molecule, or `smiles` itself if it is kept or is no mixture. A SMILES that
        cannot be read is returned too; its reason is found where it is parsed.

    Raises:
        ChemError: The SMILES is a mixture and `choice` is `refuse`.
    """
    if choice == "keep" or not ("." in smiles or INCHI in smiles):
        return smiles
    try:
        with quiet_rdkit():
            molecules = Chem.GetMolFrags(parse_without_maps(smiles), asMols=True)
    except ChemError:
        return smiles
    if len(molecules) < 2:
        return smiles
    if choice == "refuse":
        raise ChemError(f"mixture of {len(molecules)} molecules")
    return min(fragment_key(molecule) for molecule in molecules)[-1]


def fragment_key(mol: Chem.Mol) -> tuple[int, float, str]:
    """Return the negative number of heavy atoms, the negative weight, and the canonical SMILES.

    The weight is summed by element, so that it does not depend on the order of the atoms.
    """
    table = Chem.GetPeriodicTable()
    counts = Counter(atom.GetAtomicNum() for atom in mol.GetAtoms())
    counts[1] += sum(atom.GetTotalNumHs() for atom in mol.GetAtoms())
    weight = sum(count * table.GetAtomicWeight(number) for number, count in sorted(counts.items()))
    heavy = sum(count for number, count in counts.items() if number > 1)
    return -heavy, -weight, Chem.MolToSmiles(mol)


def find_wildcard(smiles: str) -> str | None:
    """Find what keeps a SMILES from being one molecule.

    Returns:
        The reason to refuse it. None for a molecule, and for a SMILES that cannot be read, whose reason is
        found where it is parsed.
    """
    try:
        mol = parse_smiles(smiles)
    except ChemError:
        return None
    if any(atom.GetAtomicNum() == 0 for atom in mol.GetAtoms()):
        return f"wildcard or R-group (*){_KEEP}"
    if any(bond.HasQuery() for bond in mol.GetBonds()):
        return f"bond of any order (~){_KEEP}"
    return None
