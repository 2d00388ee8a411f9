"""A package folder read as a registry: file name = configuration name = class stem.

`Registry("molslice.attention", Attention)` knows `slice_sort` because a file `slice_sort.py` stands in the
folder and holds a class `SliceSort`. Names are listed without importing anything; a class is imported
when it is asked for. `base` is never a member, nor are the files that the registry is told of as `rooms`.
A program outside of the package adds a class of its own with `add`, for as long as it runs.
"""

import difflib
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from molslice.types import MolsliceError

Member = TypeVar("Member")


def near_names(name: str, choices: Iterable[str]) -> str:
    """A hint for a misspelt name: the nearest choices if any are near, then all of them."""
    listed = sorted(choices)
    near = difflib.get_close_matches(name, listed, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return f"{hint}choices: {', '.join(listed) or '(none)'}"


class Registry(Generic[Member]):
    """The members of one package folder, all subclasses of one base class."""

    def __init__(self, package: str, base: type[Member], kind: str, rooms: Iterable[str] = ()) -> None:
        self.package, self.base, self.kind = package, base, kind
        self.rooms = frozenset(rooms) | {"base"}  # files of the folder that are not members
        self._added: dict[str, type[Member]] = {}

    def names(self) -> list[str]:
        """All configuration names, sorted, without importing the members."""
        paths = importlib.import_module(self.package).__path__
        found = (module.name for module in pkgutil.iter_modules(paths) if not module.ispkg)
        members = {name for name in found if name not in self.rooms and not name.startswith("_")}
        return sorted(members | self._added.keys())

    def add(self, name: str, member: type[Member]) -> type[Member]:
        """Make a class from outside of the package known under `name`; gives the class back.

        Raises:
            MolsliceError: not a subclass of the base class, or a name that is taken by another class.
        """
        if not (isinstance(member, type) and issubclass(member, self.base)):
            raise MolsliceError(f"{member!r} is no {self.kind}: not a subclass of {self.base.__name__}")
        if name in self.names() and self._added.get(name) is not member:
            raise MolsliceError(f"the {self.kind} {name!r} exists already")
        self._added[name] = member
        return member

    def find(self, name: str) -> type[Member]:
        """The class registered under `name`.

        Raises:
            MolsliceError: no file of that name; the message lists the names.
        """
        if name in self._added:
            return self._added[name]
        if name not in self.names():
            raise MolsliceError(f"unknown {self.kind} {name!r}; {near_names(name, self.names())}")
        module = importlib.import_module(f"{self.package}.{name}")
        stem = name.replace("_", "")
        for label, member in vars(module).items():
            if label.lower() == stem and isinstance(member, type) and issubclass(member, self.base):
                return member
        raise MolsliceError(f"{self.package}.{name} holds no {self.base.__name__} named like its file")

    def options(self, name: str) -> dict[str, inspect.Parameter]:
        """The member's own options: the keyword-only parameters of its constructor."""
        parameters = inspect.signature(self.find(name).__init__).parameters
        return {k: p for k, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}

    def hints(self, name: str) -> dict[str, Any]:
        """The types of the member's own options, as far as its annotations say them where they stand."""
        try:
            hints = typing.get_type_hints(self.find(name).__init__)
        except (NameError, TypeError):  # names that only a type checker sees
            return {}
        return {option: hints[option] for option in self.options(name) if option in hints}

    def build(self, name: str, *args: Any, options: dict[str, Any] | None = None) -> Member:  # noqa: ANN401
        """Construct the member `name` with positional arguments and its own options.

        Raises:
            MolsliceError: unknown name or unknown option; the message names the near ones.
        """
        known = self.options(name)
        for option in options or {}:
            if option not in known:
                raise MolsliceError(
                    f"{self.kind} {name!r} has no option {option!r}; {near_names(option, known)}"
                )
        return self.find(name)(*args, **(options or {}))
