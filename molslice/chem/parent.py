"""The parent of a molecule: its compound without counterions, stereochemistry, isotopes and charges.

Source: RDKit's MolStandardize, a port of MolVS (Swain 2014). Bonds to metals are broken by
`MetalDisconnector`, functional groups are written in one way by `Normalizer`, and charges are neutralized by
`Uncharger`, by adding or removing protons where possible.
"""

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from rdkit import Chem
from rdkit.Chem.MolStandardize import rdMolStandardize as Standardizer

from molslice.chem.fragments import fragment_key
from molslice.chem.smiles import MAX_PARSED_ATOMS, ChemError, drop_atom_maps, parse_unguarded, quiet_rdkit

# RDKit writes sulfoxides with charges, of which a scaffold loses the oxygen
_OXIDE = "Oxide without charges\t[P,As,S,Se,Te;+1:1]-[O;-1:2]>>[*+0:1]=[*+0:2]"
_CHANGEABLE = Chem.MolFromSmarts(  # a charge or a metal; most molecules have neither
    "[!+0,!#0!#1!#5!#6!#7!#8!#9!#14!#15!#16!#17!#33!#34!#35!#52!#53]"
)

# of counterions that may be larger than the compound of a salt; tetraphenylborate has none
_NEUTRAL_FORMS = {
    "acetic": "CC(=O)O",
    "adipic": "OC(=O)CCCCC(=O)O",
    "ascorbic": "OCC(O)C1OC(=O)C(O)=C1O",
    "benzenesulfonic": "OS(=O)(=O)c1ccccc1",
    "benzoic": "OC(=O)c1ccccc1",
    "bistriflimide": "O=S(=O)(NS(=O)(=O)C(F)(F)F)C(F)(F)F",
    "camphorsulfonic": "CC1(C)C2CCC1(CS(=O)(=O)O)C(=O)C2",
    "citric": "OC(=O)CC(O)(CC(=O)O)C(=O)O",
    "dodecylsulfuric": "CCCCCCCCCCCCOS(=O)(=O)O",
    "ethanesulfonic": "CCS(=O)(=O)O",
    "ethane-1,2-disulfonic": "OS(=O)(=O)CCS(=O)(=O)O",
    "formic": "OC=O",
    "fumaric and maleic": "OC(=O)C=CC(=O)O",
    "gentisic": "OC(=O)c1cc(O)ccc1O",
    "gluconic": "OCC(O)C(O)C(O)C(O)C(=O)O",
    "glucoheptonic": "OCC(O)C(O)C(O)C(O)C(O)C(=O)O",
    "glucuronic": "OC1OC(C(=O)O)C(O)C(O)C1O",
    "glutaric": "OC(=O)CCCC(=O)O",
    "glycolic": "OCC(=O)O",
    "hippuric": "OC(=O)CNC(=O)c1ccccc1",
    "2-hydroxyethanesulfonic": "OCCS(=O)(=O)O",
    "lactic": "CC(O)C(=O)O",
    "lactobionic": "OCC1OC(OC(C(O)CO)C(O)C(O)C(=O)O)C(O)C(O)C1O",
    "malic": "OC(=O)CC(O)C(=O)O",
    "malonic": "OC(=O)CC(=O)O",
    "mandelic": "OC(=O)C(O)c1ccccc1",
    "methanesulfonic": "CS(=O)(=O)O",
    "methylsulfuric": "COS(=O)(=O)O",
    "naphthalene-1,5-disulfonic": "OS(=O)(=O)c1cccc2c1cccc2S(=O)(=O)O",
    "naphthalene-2-sulfonic": "OS(=O)(=O)c1ccc2ccccc2c1",
    "oleic": "CCCCCCCCC=CCCCCCCCC(=O)O",
    "oxalic": "OC(=O)C(=O)O",
    "palmitic": "CCCCCCCCCCCCCCCC(=O)O",
    "pamoic": "OC(=O)c1cc2ccccc2c(Cc2c(O)c(C(=O)O)cc3ccccc23)c1O",
    "picric": "Oc1c([N+](=O)[O-])cc([N+](=O)[O-])cc1[N+](=O)[O-]",
    "propionic": "CCC(=O)O",
    "saccharin": "O=C1NS(=O)(=O)c2ccccc12",
    "salicylic": "OC(=O)c1ccccc1O",
    "sebacic": "OC(=O)CCCCCCCCC(=O)O",
    "stearic": "CCCCCCCCCCCCCCCCCC(=O)O",
    "succinic": "OC(=O)CCC(=O)O",
    "tartaric": "OC(=O)C(O)C(O)C(=O)O",
    "tetraphenylborate": "c1ccc([B-](c2ccccc2)(c2ccccc2)c2ccccc2)cc1",
    "toluenesulfonic": "Cc1ccc(cc1)S(=O)(=O)O",
    "trifluoroacetic": "OC(=O)C(F)(F)F",
    "trifluoromethanesulfonic": "OS(=O)(=O)C(F)(F)F",
    "xinafoic": "OC(=O)c1ccc2ccccc2c1O",
    "benzathine": "C(CNCc1ccccc1)NCc1ccccc1",
    "dicyclohexylamine": "C1CCC(CC1)NC1CCCCC1",
    "diethanolamine": "OCCNCCO",
    "meglumine": "CNCC(O)C(O)C(O)C(O)CO",
    "triethanolamine": "OCCN(CCO)CCO",
    "triethylamine": "CCN(CC)CC",
    "tromethamine": "NC(CO)(CO)CO",
}


def parents(smiles: Iterable[str]) -> list[str]:
    """Find the parent of each molecule.

    A mixture has the parent of its largest fragment with carbon that is not a common counterion, or of the
    largest fragment if there is no other.

    Returns:
        The parents as canonical SMILES: equal for the stereoisomers, the isotopologues and the salts of a
        compound, also of a salt with a covalent bond to its metal. A SMILES that cannot be read is its own
        parent.
    """
    return [_parent(text) for text in smiles]


@cache
def counterions() -> frozenset[str]:
    """Return the neutral forms of common organic counterions, as canonical SMILES without stereochemistry."""
    return frozenset(map(Chem.CanonSmiles, _NEUTRAL_FORMS.values()))


def _parent(smiles: str) -> str:
    try:
        with quiet_rdkit():
            mol = parse_unguarded(smiles, MAX_PARSED_ATOMS)
            drop_atom_maps(mol)
            Chem.RemoveStereochemistry(mol)
            mol = _in_one_form(mol)
            fragments = [_neutral(fragment) for fragment in Chem.GetMolFrags(mol, asMols=True)]
            if len(fragments) == 1:
                return Chem.MolToSmiles(fragments[0])
            keys = {fragment_key(fragment): _has_carbon(fragment) for fragment in fragments}
            known = counterions()
            compounds = [key for key, has_carbon in keys.items() if has_carbon and key[-1] not in known]
            return min(compounds or keys)[-1]
    except (ChemError, ValueError):  # RDKit cannot sanitize some molecules without their hydrogens
        return smiles


def _in_one_form(mol: Chem.Mol) -> Chem.Mol:
    """Break covalent bonds to metals, and write functional groups in one way, such as `S=O` for `[S+][O-]`.

    A molecule for which RDKit cannot do this stays as it is.
    """
    if not mol.HasSubstructMatch(_CHANGEABLE):
        return mol
    try:
        broken = _tools().disconnector.Disconnect(mol)
        changed = _tools().oxides.normalize(_tools().normalizer.normalize(broken))
        return parse_unguarded(Chem.MolToSmiles(changed), MAX_PARSED_ATOMS)
    except (ChemError, RuntimeError, ValueError):
        return mol


def _neutral(mol: Chem.Mol) -> Chem.Mol:
    if any(atom.GetFormalCharge() for atom in mol.GetAtoms()):
        try:
            return Chem.RemoveHs(_tools().uncharger.uncharge(mol))
        except ValueError:  # an anion such as hexafluorophosphate has no neutral form
            pass
    return Chem.RemoveHs(mol)


def _has_carbon(mol: Chem.Mol) -> bool:
    return any(atom.GetAtomicNum() == 6 for atom in mol.GetAtoms())


class _Tools(NamedTuple):
    disconnector: Standardizer.MetalDisconnector
    normalizer: Standardizer.Normalizer
    oxides: Standardizer.Normalizer
    uncharger: Standardizer.Uncharger


@cache
def _tools() -> _Tools:
    """Return RDKit's tools, which take time to make."""
    return _Tools(
        Standardizer.MetalDisconnector(),
        Standardizer.Normalizer(),
        Standardizer.NormalizerFromData(_OXIDE, Standardizer.CleanupParameters()),
        Standardizer.Uncharger(canonicalOrder=True, force=True),  # also the acid of a quaternary ammonium
    )
