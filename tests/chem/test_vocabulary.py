"""The tables against OGB's lists, entry by entry."""

import pytest
from rdkit import Chem

from molslice.chem import vocabulary
from molslice.data.molecules.leaderboard import import_ogb
from molslice.ops.vocabulary import ATOM_FEATURE_SIZES, BOND_FEATURE_SIZES

features = import_ogb("ogb.utils.features")
ALLOWED = features.allowable_features


def test_sizes_are_ogbs():
    assert list(ATOM_FEATURE_SIZES) == features.get_atom_feature_dims()
    assert list(BOND_FEATURE_SIZES) == features.get_bond_feature_dims()


@pytest.mark.parametrize(
    ("table", "feature", "values"),
    [
        (vocabulary.ATOMIC_NUMBER, "possible_atomic_num_list", range(119)),
        (vocabulary.DEGREE, "possible_degree_list", range(256)),
        (vocabulary.CHARGE, "possible_formal_charge_list", range(-128, 128)),
        (vocabulary.HYDROGENS, "possible_numH_list", range(256)),
        (vocabulary.RADICALS, "possible_number_radical_e_list", range(256)),
    ],
)
def test_numbers(table, feature, values):
    for value in values:
        assert table[value] == features.safe_index(ALLOWED[feature], value), value


@pytest.mark.parametrize(
    ("table", "feature", "enum"),
    [
        (vocabulary.CHIRALITY, "possible_chirality_list", Chem.ChiralType),
        (vocabulary.HYBRIDIZATION, "possible_hybridization_list", Chem.HybridizationType),
        (vocabulary.BOND_TYPE, "possible_bond_type_list", Chem.BondType),
    ],
)
def test_enumerations(table, feature, enum):
    for value in enum.values.values():
        assert table[value] == features.safe_index(ALLOWED[feature], str(value)), value


def test_stereo_is_ogbs_where_ogb_has_one_and_none_where_it_raises():
    allowed = ALLOWED["possible_bond_stereo_list"]
    for value in Chem.BondStereo.values.values():
        expected = allowed.index(str(value)) if str(value) in allowed else allowed.index("STEREONONE")
        assert vocabulary.STEREO[value] == expected, value
