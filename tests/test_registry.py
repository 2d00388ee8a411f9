"""Tests of the registry: members of a folder, and members that a program adds."""

import pytest

from molslice.attention import ATTENTIONS, Attention
from molslice.attention.mean import Mean
from molslice.registry import Registry
from molslice.types import AttentionSpec, MolsliceError


class Own(Mean):
    """Class of another package."""


@pytest.fixture
def registry():
    return Registry("molslice.attention", Attention, "attention")


def test_a_class_of_another_package_is_built_by_its_name(registry):
    assert registry.add("own", Own) is Own
    assert "own" in registry.names()
    built = registry.build("own", AttentionSpec(8, 2))
    assert isinstance(built, Own)
    assert built.name == "Own"
    assert registry.add("own", Own) is Own  # again, as a process that imports the module twice does


def test_what_cannot_be_added_is_refused(registry):
    with pytest.raises(MolsliceError, match="'softmax' exists already"):
        registry.add("softmax", Own)
    with pytest.raises(MolsliceError, match="not a subclass of Attention"):
        registry.add("own", int)
    assert "own" not in ATTENTIONS.names()
