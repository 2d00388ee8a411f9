"""Registries of package folders: file name = configuration name = class name.

`Registry("molslice.attention", Attention)` finds `slice_sort` if a file `slice_sort.py` in the folder, or in
a package below it, defines a class `SliceSort(...)` with a base class. Other files of the folder are not
members. A new member is therefore one new file, without a list to edit. Names are found without importing
members; a class is imported when it is requested. With a suffix, for example `Spec`, the class of that file
is `SliceSortSpec`. A program outside of the package registers its own class with `add`, for the current
process.
"""

import difflib
import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from molslice.errors import MolsliceError

Member = TypeVar("Member")


def near_names(name: str, choices: Iterable[str]) -> str:
    """Return a hint for a misspelled name: the nearest choices, if any, then all choices."""
    listed = sorted(choices)
    near = difflib.get_close_matches(name, listed, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return f"{hint}choices: {', '.join(listed) or '(none)'}"


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Check that an option has one of some values. The message lists them, the nearest first."""
    choices = tuple(choices)
    if value not in choices:
        raise MolsliceError(f"invalid {name} {value!r}; {near_names(str(value), choices)}")


class Registry(Generic[Member]):
    """The members of one package folder, all subclasses of one base class.

    Args:
        package: The package whose modules are searched.
        base: The base class of all members.
        kind: The word for a member in messages, such as "attention".
        suffix: What a class name adds to the name of its file, such as `Spec`.
    """

    def __init__(self, package: str, base: type[Member], kind: str, suffix: str = "") -> None:
        self.package, self.base, self.kind, self.suffix = package, base, kind, suffix
        self._added: dict[str, type[Member]] = {}

    @cached_property
    def _modules(self) -> dict[str, str]:
        """The module of each configuration name."""
        paths = importlib.import_module(self.package).__path__
        modules = (
            module for path in paths for module in _modules_below(Path(path), self.package, self.suffix)
        )
        return dict(sorted((module.rpartition(".")[2], module) for module in modules))

    def names(self) -> list[str]:
        """Return all configuration names, sorted, without importing the members."""
        return sorted(self._modules.keys() | self._added.keys())

    def add(self, name: str, member: type[Member]) -> type[Member]:
        """Register a class from outside of the package, for the current process.

        Raises:
            MolsliceError: The class is not a subclass of the base class, or the name belongs to another
                class.
        """
        if not (isinstance(member, type) and issubclass(member, self.base)):
            raise MolsliceError(f"{member!r} is not a subclass of {self.base.__name__}")
        if name in self.names() and self._added.get(name) is not member:
            raise MolsliceError(f"the {self.kind} {name!r} exists already")
        self._added[name] = member
        return member

    def is_added(self, name: str) -> bool:
        """Return whether the name was registered with `add`: other processes do not know it."""
        return name in self._added

    def remove(self, name: str) -> None:
        """Remove a class registered with `add`; other names have no effect."""
        self._added.pop(name, None)

    def find(self, name: str) -> type[Member]:
        """Return the class registered under `name`.

        Raises:
            MolsliceError: The name is unknown, or its file does not define the class; the message lists the
                names.
        """
        if name in self._added:
            return self._added[name]
        if name not in self._modules:
            raise MolsliceError(f"unknown {self.kind} {name!r}; {near_names(name, self.names())}")
        module = importlib.import_module(self._modules[name])
        stem = _stem(name, self.suffix)
        for label, member in vars(module).items():
            if label.lower() == stem and isinstance(member, type) and issubclass(member, self.base):
                return member
        raise MolsliceError(f"{module.__name__} does not define a {self.base.__name__} named like its file")

    def options(self, name: str) -> dict[str, inspect.Parameter]:
        """Return the options of a member: the keyword-only parameters of its constructor.

        A constructor with `**options` also has the options of the base class, to which it gives them. Those
        without a default are first.
        """
        options: dict[str, inspect.Parameter] = {}
        for constructor in _constructors(self.find(name)):
            parameters = inspect.signature(constructor).parameters
            keywords = {k: p for k, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}
            options.update({k: p for k, p in keywords.items() if k not in options})
        return dict(sorted(options.items(), key=lambda item: item[1].default is not item[1].empty))

    def hints(self, name: str) -> dict[str, Any]:
        """Return the types of the options of a member; empty if its annotations cannot be resolved."""
        hints: dict[str, Any] = {}
        try:
            for constructor in _constructors(self.find(name)):
                hints = {**typing.get_type_hints(constructor), **hints}
        except (NameError, TypeError):  # names imported for type checking only
            return {}
        return {option: hints[option] for option in self.options(name) if option in hints}

    def build(self, name: str, *args: Any, options: dict[str, Any] | None = None) -> Member:  # noqa: ANN401
        """Construct the member `name` from positional arguments and its options, the keyword-only ones.

        Raises:
            MolsliceError: The name or an option is unknown; the message suggests similar ones.
        """
        known = self.options(name)
        for option in options or {}:
            if option not in known:
                raise MolsliceError(
                    f"{self.kind} {name!r} has no option {option!r}; {near_names(option, known)}"
                )
        return self.find(name)(*args, **(options or {}))


def _constructors(member: type) -> Iterator[Callable[..., None]]:
    """Yield the constructor of a class, and while it has `**options` also the one of its base class."""
    for cls in member.__mro__:
        if constructor := vars(cls).get("__init__"):
            yield constructor
            kinds = {parameter.kind for parameter in inspect.signature(constructor).parameters.values()}
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                return


def _stem(name: str, suffix: str) -> str:
    return (name.replace("_", "") + suffix).lower()


def _modules_below(folder: Path, package: str, suffix: str) -> Iterator[str]:
    """Yield the modules of a package, at any depth, that define a derived class named like their file."""
    for module in pkgutil.iter_modules([str(folder)]):
        if module.ispkg:
            yield from _modules_below(folder / module.name, f"{package}.{module.name}", suffix)
            continue
        stem = _stem(module.name, suffix)
        classes = re.findall(r"^class (\w+)\(", (folder / f"{module.name}.py").read_text("utf-8"), re.M)
        if any(name.lower() == stem for name in classes):
            yield f"{package}.{module.name}"
