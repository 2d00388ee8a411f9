"""Reading OGB's `split_dict.pt` without executing anything that it says.

The file is a pickle: a program that may call whatever it names. Here every name it may use stands for a
stand-in of ours that only takes note, every other name is refused, and nothing of numpy's or torch's own
unpickling runs. The stand-ins are made anew for each file, so that no file can leave a trace for the next.
"""

import pickle
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from molslice.types import MolsliceError

LARGEST_MEMBER = 1 << 30  # bytes; the split of PCQM4Mv2 takes 30 million
INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
STORAGES = {"LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2"}
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C  # the first of the pickles that torch before 1.6 wrote in a row
PICKLE_ERRORS = (
    pickle.UnpicklingError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RecursionError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_split_file(path: Path) -> dict[str, np.ndarray]:
    """The rows of each split, int64, from a dictionary of integer arrays that `torch.save` wrote.

    Raises:
        MolsliceError: no such file, not such a dictionary, or one that asks for anything else to be loaded.
    """
    try:
        content = _read_zip(path) if zipfile.is_zipfile(path) else _read_legacy(path)
    except FileNotFoundError as error:
        raise MolsliceError(f"no such file: {path}") from error
    except PICKLE_ERRORS as error:
        raise MolsliceError(f"{path} cannot be read as a dictionary of splits: {error}") from error
    if not isinstance(content, dict) or not content:
        raise MolsliceError(f"{path} holds no dictionary of splits but {type(content).__name__}")
    return {_name(path, name): _rows(path, name, value) for name, value in content.items()}


def _name(path: Path, name: object) -> str:
    if not isinstance(name, str):
        raise MolsliceError(f"{path} has a split whose name is {type(name).__name__}")
    return name


def _rows(path: Path, name: str, value: object) -> np.ndarray:
    rows = value if isinstance(value, list) else getattr(value, "array", None)
    try:
        array = np.asarray(rows)
        if array.ndim == 1 and array.dtype.kind in "iu":
            return array.astype(np.int64)
    except (ValueError, OverflowError):
        pass
    raise MolsliceError(f"{path}: the split {name!r} is not a list of integers")


def _read_zip(path: Path) -> object:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(names) != 1:
            raise ValueError("not written by torch.save")
        folder = names[0].removesuffix("data.pkl")

        def member(name: str) -> bytes:
            if archive.getinfo(folder + name).file_size > LARGEST_MEMBER:
                raise ValueError(f"{name} is larger than {LARGEST_MEMBER} bytes")
            return archive.read(folder + name)

        def storage(key: str, dtype: str) -> np.ndarray:
            return np.frombuffer(member(f"data/{key}"), dtype)

        with archive.open(names[0]) as file:
            if archive.getinfo(names[0]).file_size > LARGEST_MEMBER:
                raise ValueError(f"data.pkl is larger than {LARGEST_MEMBER} bytes")
            return _Reader(file, storage).load()


def _read_legacy(path: Path) -> object:
    def no_storage(key: str, dtype: str) -> np.ndarray:
        raise ValueError("it holds tensors in the format of torch before 1.6; save it again with a newer one")

    with path.open("rb") as file:
        if _Reader(file, no_storage).load() != LEGACY_MAGIC:
            raise ValueError("not written by torch.save")
        _Reader(file, no_storage).load()  # version of the protocol
        _Reader(file, no_storage).load()  # the system that wrote it
        return _Reader(file, no_storage).load()


class _Reader(pickle.Unpickler):
    """An unpickler that knows integer arrays of numpy and torch by stand-ins, and nothing else."""

    def __init__(self, file: IO[bytes], storage: Callable[[str, str], np.ndarray]) -> None:
        super().__init__(file)
        self.storage = storage
        self.stand_ins = _stand_ins()

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        """The stand-in for a name; the only way by which a pickle gets hold of anything callable."""
        module = module.replace("numpy._core", "numpy.core")  # numpy 2 has moved what it writes
        try:
            return self.stand_ins[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not loaded") from None

    def persistent_load(self, pid: Any) -> Any:  # noqa: ANN401
        """The storage of a tensor, kept beside the pickle."""
        kind, storage, key, _location, _count = pid
        if kind != "storage":
            raise pickle.UnpicklingError(f"it asks for {kind!r}, which is not loaded")
        return self.storage(str(int(key)), storage().dtype)


def _stand_ins() -> dict[tuple[str, str], Any]:
    class Dtype:
        """Takes note of an integer type."""

        def __init__(self, code: str, *flags: object) -> None:
            if code not in INTEGERS:
                raise ValueError(f"an array of type {code!r} instead of integers")
            self.code, self.order = code, "<"

        def __setstate__(self, state: tuple[Any, ...]) -> None:
            if state[1] not in ("<", ">", "|", "="):
                raise ValueError(f"byte order {state[1]!r}")
            self.order = state[1]

    class Array:
        """Takes note of the contents of an array."""

        def __init__(self, *parts: object) -> None:
            self.array = None

        def __setstate__(self, state: tuple[Any, ...]) -> None:
            _version, shape, dtype, _is_fortran, data = state
            if not isinstance(dtype, Dtype) or not isinstance(data, bytes):
                raise ValueError("an array that is not plain integers")
            self.array = np.frombuffer(data, dtype.order + dtype.code).reshape(shape)

    class Marker:
        """Stands where a class is named and never used."""

    def encoded(text: str, encoding: str) -> bytes:
        return str(text).encode("latin1")  # how protocol 2 writes bytes

    def tensor(
        storage: np.ndarray, offset: int, size: tuple[int], stride: tuple[int], *rest: object
    ) -> Array:
        if len(size) != 1 or tuple(stride) != (1,) or offset < 0 or offset + size[0] > len(storage):
            raise ValueError("a tensor that is not a plain list")
        array = Array()
        array.array = storage[offset : offset + size[0]]
        return array

    return {
        ("numpy.core.multiarray", "_reconstruct"): Array,
        ("numpy", "ndarray"): Marker,
        ("numpy", "dtype"): Dtype,
        ("_codecs", "encode"): encoded,
        ("__builtin__", "bytes"): lambda: b"",  # how protocol 2 writes an empty array
        ("collections", "OrderedDict"): lambda *pairs: dict(*pairs),
        ("torch._utils", "_rebuild_tensor_v2"): tensor,
        **{("torch", name): _storage_type(dtype) for name, dtype in STORAGES.items()},
    }


def _storage_type(dtype: str) -> type:
    return type("Storage", (), {"dtype": dtype})
