"""Tests of the registry: members of a folder, and members that a program adds."""

import inspect

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
    assert not registry.is_added("own")
    assert registry.add("own", Own) is Own
    assert registry.is_added("own")
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


def test_any_options_of_a_constructor_are_those_of_its_base_class(registry):
    class First(Mean):
        def __init__(self, spec, *, width: int, depth: int = 1):
            super().__init__(spec)
            self.width = width

    class Second(First):
        def __init__(self, spec, *, depth: float = 2.0, **options):
            super().__init__(spec, **options)

    class Third(Second):
        def __init__(self, spec, *, depth: int = 3):
            super().__init__(spec, depth=depth, width=4)

    for name, member in (("second", Second), ("third", Third)):
        registry.add(name, member)
    options = [(name, option.default) for name, option in registry.options("second").items()]
    assert options == [("width", inspect.Parameter.empty), ("depth", 2.0)]
    assert registry.hints("second") == {"width": int, "depth": float}
    assert list(registry.options("third")) == ["depth"]
    assert registry.build("second", AttentionSpec(8, 2), options={"width": 3}).width == 3
    with pytest.raises(MolsliceError, match="no option 'widht'; did you mean 'width'"):
        registry.build("second", AttentionSpec(8, 2), options={"widht": 3})
