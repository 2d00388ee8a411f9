"""RDKit's two-dimensional descriptors and Morgan counts of molecules.

The list of descriptors is fixed and does not depend on the version of RDKit. It is the list of RDKit 2026.09
without `Ipc` and `AvgIpc`. The time of these two grows with the fourth power of the number of atoms (4 s for
250 atoms), and they overflow in large molecules, so that they depend on the order of the atoms. All others
together take 6 ms for 25 atoms and 0.15 s for 250.

Values are computed from the canonical molecule and are therefore the same for all SMILES of a molecule. A
value that RDKit cannot compute, or that is infinite, is NaN; partial charges of metals are an example. Most
values come from `molslice.chem.descriptor_groups`, in a third of the time of RDKit's functions.
"""

import functools
import math
from collections.abc import Callable

import numpy as np
from rdkit import Chem
from rdkit.Chem import Descriptors, rdFingerprintGenerator, rdMolDescriptors

from molslice.chem.canonical import canonical_molecule
from molslice.chem.descriptor_groups import FAULTS, grouped_descriptors
from molslice.chem.smiles import quiet_rdkit

MORGAN_RADIUS = 2
MORGAN_BITS = 2048
MOST = np.iinfo(np.uint8).max  # larger counts are stored as this number
LARGEST = np.finfo(np.float32).max

_NAMES = """
MaxAbsEStateIndex MaxEStateIndex MinAbsEStateIndex MinEStateIndex qed SPS MolWt HeavyAtomMolWt
ExactMolWt NumValenceElectrons NumRadicalElectrons MaxPartialCharge MinPartialCharge MaxAbsPartialCharge
MinAbsPartialCharge FpDensityMorgan1 FpDensityMorgan2 FpDensityMorgan3 BCUT2D_MWHI BCUT2D_MWLOW
BCUT2D_CHGHI BCUT2D_CHGLO BCUT2D_LOGPHI BCUT2D_LOGPLOW BCUT2D_MRHI BCUT2D_MRLOW BalabanJ BertzCT Chi0
Chi0n Chi0v Chi1 Chi1n Chi1v Chi2n Chi2v Chi3n Chi3v Chi4n Chi4v HallKierAlpha Kappa1 Kappa2 Kappa3
LabuteASA PEOE_VSA1 PEOE_VSA10 PEOE_VSA11 PEOE_VSA12 PEOE_VSA13 PEOE_VSA14 PEOE_VSA2 PEOE_VSA3 PEOE_VSA4
PEOE_VSA5 PEOE_VSA6 PEOE_VSA7 PEOE_VSA8 PEOE_VSA9 SMR_VSA1 SMR_VSA10 SMR_VSA2 SMR_VSA3 SMR_VSA4 SMR_VSA5
SMR_VSA6 SMR_VSA7 SMR_VSA8 SMR_VSA9 SlogP_VSA1 SlogP_VSA10 SlogP_VSA11 SlogP_VSA12 SlogP_VSA2 SlogP_VSA3
SlogP_VSA4 SlogP_VSA5 SlogP_VSA6 SlogP_VSA7 SlogP_VSA8 SlogP_VSA9 TPSA EState_VSA1 EState_VSA10
EState_VSA11 EState_VSA2 EState_VSA3 EState_VSA4 EState_VSA5 EState_VSA6 EState_VSA7 EState_VSA8
EState_VSA9 VSA_EState1 VSA_EState10 VSA_EState2 VSA_EState3 VSA_EState4 VSA_EState5 VSA_EState6
VSA_EState7 VSA_EState8 VSA_EState9 FractionCSP3 HeavyAtomCount NHOHCount NOCount
NumAliphaticCarbocycles NumAliphaticHeterocycles NumAliphaticRings NumAmideBonds NumAromaticCarbocycles
NumAromaticHeterocycles NumAromaticRings NumAtomStereoCenters NumBridgeheadAtoms NumHAcceptors
NumHDonors NumHeteroatoms NumHeterocycles NumRotatableBonds NumSaturatedCarbocycles
NumSaturatedHeterocycles NumSaturatedRings NumSpiroAtoms NumUnspecifiedAtomStereoCenters Phi RingCount
MolLogP MolMR fr_Al_COO fr_Al_OH fr_Al_OH_noTert fr_ArN fr_Ar_COO fr_Ar_N fr_Ar_NH fr_Ar_OH fr_COO
fr_COO2 fr_C_O fr_C_O_noCOO fr_C_S fr_HOCCN fr_Imine fr_NH0 fr_NH1 fr_NH2 fr_N_O fr_Ndealkylation1
fr_Ndealkylation2 fr_Nhpyrrole fr_SH fr_aldehyde fr_alkyl_carbamate fr_alkyl_halide fr_allylic_oxid
fr_amide fr_amidine fr_aniline fr_aryl_methyl fr_azide fr_azo fr_barbitur fr_benzene fr_benzodiazepine
fr_bicyclic fr_diazo fr_dihydropyridine fr_epoxide fr_ester fr_ether fr_furan fr_guanido fr_halogen
fr_hdrzine fr_hdrzone fr_imidazole fr_imide fr_isocyan fr_isothiocyan fr_ketone fr_ketone_Topliss
fr_lactam fr_lactone fr_methoxy fr_morpholine fr_nitrile fr_nitro fr_nitro_arom fr_nitro_arom_nonortho
fr_nitroso fr_oxazole fr_oxime fr_para_hydroxylation fr_phenol fr_phenol_noOrthoHbond fr_phos_acid
fr_phos_ester fr_piperdine fr_piperzine fr_priamide fr_prisulfonamd fr_pyridine fr_quatN fr_sulfide
fr_sulfonamd fr_sulfone fr_term_acetylene fr_tetrazole fr_thiazole fr_thiocyan fr_thiophene
fr_unbrch_alkane fr_urea
"""
# computed once per molecule unless they are asked to compute again
_CACHED = ("MaxAbsEStateIndex", "MaxEStateIndex", "MinAbsEStateIndex", "MinEStateIndex")
_CHECKED_SMILES = (  # most descriptors differ from zero in one of them
    "C[C@H](N)C(=O)N1CCC(O)(CC1)c1ccc(F)c([N+](=O)[O-])c1",
    "CC/C(=N\\O)c1nc2cc(Cl)ccc2s1.O=S(=O)([O-])C1CC1",
)
_MORGAN = rdFingerprintGenerator.GetMorganGenerator(radius=MORGAN_RADIUS, fpSize=MORGAN_BITS)


def descriptor_names() -> tuple[str, ...]:
    """Return the names of the D descriptors, RDKit's own."""
    return tuple(_FUNCTIONS)


def descriptors(mol: Chem.Mol) -> np.ndarray:
    """Compute the descriptors of a molecule from `canonical_molecule` without changing it, float64 [D].

    With any other order of the atoms, the last digits differ. A value that cannot be computed or is infinite
    is NaN.
    """
    mol = Chem.Mol(mol)  # RDKit keeps intermediate results in the molecule
    grouped, agreement = grouped_descriptors(mol), _agreement()
    values = np.array(
        [
            grouped[name] if name in grouped and agreement.get(name) else _computed(function, mol)
            for name, function in _FUNCTIONS.items()
        ]
    )
    values[~np.isfinite(values)] = np.nan
    return values


def _computed(function: Callable[[Chem.Mol], float], mol: Chem.Mol) -> float:
    try:
        return float(function(mol))
    except FAULTS:
        return math.nan


@functools.cache
def _agreement() -> dict[str, bool]:
    """Return whether `grouped_descriptors` computes each descriptor as this version of RDKit does."""
    agreement = dict.fromkeys(_FUNCTIONS, True)
    for smiles in _CHECKED_SMILES:
        mol = Chem.MolFromSmiles(smiles)
        grouped = grouped_descriptors(Chem.Mol(mol))
        for name, function in _FUNCTIONS.items():
            agreement[name] &= grouped.get(name) == _computed(function, mol)
    return agreement


def morgan_counts(mol: Chem.Mol) -> np.ndarray:
    """Count the environments of the atoms up to radius 2, hashed to 2048 bins.

    Returns:
        The counts, uint8 [2048]; a count above 255 is 255.

    Source: Rogers and Hahn, J. Chem. Inf. Model. 50 (2010) 742, in RDKit's implementation without chirality.
    """
    counts = _MORGAN.GetCountFingerprintAsNumPy(mol)
    return np.minimum(counts, MOST).astype(np.uint8)


def finite_descriptors(smiles: str) -> np.ndarray:
    """Compute the descriptors of a SMILES in the range of float32, float32 [D].

    Raises:
        ChemError: As in `parse_smiles`.
    """
    with quiet_rdkit():
        values = descriptors(canonical_molecule(smiles).mol)
    return np.clip(values, -LARGEST, LARGEST).astype(np.float32)


def _find(name: str) -> Callable[[Chem.Mol], float]:
    """Find RDKit's function for a descriptor; some have another name in `rdMolDescriptors`."""
    function = getattr(Descriptors, name, None) or getattr(rdMolDescriptors, f"Calc{name}")
    return (lambda mol: function(mol, force=False)) if name in _CACHED else function


_FUNCTIONS = {name: _find(name) for name in _NAMES.split()}
