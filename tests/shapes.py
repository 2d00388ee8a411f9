"""Runtime checks of the tensor dtypes and shapes in every signature.

Other annotations are not checked: beartype would reject a wrong option before the package does, and the
messages of the package are tested. The import hook of jaxtyping wraps every function and binds the arguments
of each call; this one wraps only functions and dataclasses with tensors.
"""

import ast
import dataclasses
import functools
import inspect
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from typing import get_args

from beartype import beartype
from jaxtyping import AbstractArray, jaxtyped

DECORATOR = "_with_checked_tensors"


def check_tensors(target):
    """Apply beartype to the annotations of tensors with shapes, of a function or of a dataclass."""
    if inspect.isclass(target):
        if dataclasses.is_dataclass(target) and "__init__" in vars(target):
            target.__init__ = check_tensors(target.__init__)
        return target
    hints = target.__annotations__
    tensors = {name: hint for name, hint in hints.items() if _names_a_tensor(hint)}
    if inspect.isgeneratorfunction(target):
        tensors.pop("return", None)
    if not tensors:
        return target
    target.__annotations__ = tensors
    checked = beartype(target)
    target.__annotations__ = hints

    @functools.wraps(target)
    def wrapper(*args, **kwargs):
        with jaxtyped("context"):  # axes of the same letter have the same length within one call
            return checked(*args, **kwargs)

    return wrapper


def _names_a_tensor(hint):
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(_names_a_tensor(part) for part in get_args(hint))


class _Loader(SourceFileLoader):
    """Loads a module and applies `check_tensors` to its functions and dataclasses."""

    def get_code(self, fullname):
        """Compile the source, without the compiled file beside it, which has no checks."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def source_to_code(self, data, path, *, _optimize=-1):
        tree = ast.parse(data, path)
        for node in ast.walk(tree):
            decorator = ast.Name(DECORATOR, ast.Load())
            if isinstance(node, ast.FunctionDef):
                node.decorator_list.append(ast.copy_location(decorator, node))
            elif isinstance(node, ast.ClassDef):
                node.decorator_list.insert(0, ast.copy_location(decorator, node))  # after @dataclass
        return super().source_to_code(tree, path, _optimize=_optimize)

    def exec_module(self, module):
        setattr(module, DECORATOR, check_tensors)
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def __init__(self, package):
        self.package = package

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] != self.package:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def install(package):
    """Check the tensors of everything imported from `package` after this call."""
    sys.meta_path.insert(0, _Finder(package))
