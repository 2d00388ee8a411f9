"""Read OGB's `split_dict.pt` without executing code from the file.

The file is a pickle: a program that can call any function by name. Here each allowed name maps to a stand-in
that only records its arguments, every other name is refused, and numpy's and torch's own unpickling does not
run. The stand-ins are created per file, so that one file cannot affect the next. The opcodes are checked
before they run, because a few bytes can otherwise exhaust time, memory or the stack.

`torch.load(weights_only=True)` with numpy's types as safe globals is not sufficient. It passes the state of
each array to numpy's own `__setstate__`, unpacks members of any size, hashes nested tuples without a limit,
and does not know the names that numpy 1 wrote. It would need the same checks.
"""

import io
import pickle
import pickletools
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from molslice.types import MolsliceError

LARGEST_MEMBER = 1 << 28  # bytes; the split of PCQM4Mv2 has 30 million
MOST_ROWS = 1 << 26  # over all splits; PCQM4Mv2 has 3.7 million
MOST_STEPS = 5_000_000  # opcodes of a pickle; a list has one per number
MOST_TUPLES = 1000  # tuples of a pickle; an array has about five
TUPLES = frozenset(("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_TUPLE"))
PUTS = frozenset(("BINPUT", "LONG_BINPUT", "MEMOIZE"))
GETS = frozenset(("BINGET", "LONG_BINGET"))
# the opcodes for a dictionary of lists, arrays and tensors in protocols 2 to 5
STEPS = {
    *(*TUPLES, *PUTS, *GETS),
    *("PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2"),
    *("LONG1", "LONG4", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES"),
    *("BINBYTES8", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS", "GLOBAL"),
    *("STACK_GLOBAL", "REDUCE", "BUILD", "BINPERSID"),
}
INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
STORAGES = {"LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2"}
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C  # first of the consecutive pickles that torch before 1.6 wrote
PICKLE_ERRORS = (
    pickle.UnpicklingError,
    ArithmeticError,
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
    """Read the rows of each split from a dictionary of integer arrays written by `torch.save`.

    Returns:
        Row numbers of each split, int64.

    Raises:
        MolsliceError: The file is missing, has other contents, or names anything that is not allowed.
    """
    try:
        content = _read_zip(path) if zipfile.is_zipfile(path) else _read_legacy(path)
    except FileNotFoundError as error:
        raise MolsliceError(f"no such file: {path}") from error
    except PICKLE_ERRORS as error:
        raise MolsliceError(f"cannot read {path} as a dictionary of splits: {error}") from error
    if not isinstance(content, dict) or not content:
        found = "an empty dict" if isinstance(content, dict) else type(content).__name__
        raise MolsliceError(f"{path} must hold a dictionary of splits, got {found}")
    splits: dict[str, np.ndarray] = {}
    for name, value in content.items():
        splits[_name(path, name)] = _rows(path, str(name), value)
        if sum(map(len, splits.values())) > MOST_ROWS:
            raise MolsliceError(f"the splits of {path} have more than {MOST_ROWS} rows")
    return splits


def _name(path: Path, name: object) -> str:
    if not isinstance(name, str):
        raise MolsliceError(f"the name of a split of {path} must be a string, got {type(name).__name__}")
    return name


def _rows(path: Path, name: str, value: object) -> np.ndarray:
    if isinstance(value, list):  # numpy would follow nested lists, which can be cyclic
        is_plain = all(type(row) is int and -(2**63) <= row < 2**63 for row in value)
        array = np.array(value if is_plain else [[]], np.int64)
    else:
        array = getattr(value, "array", None)
    if isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype.kind in "iu":
        return array.astype(np.int64)
    raise MolsliceError(f"the split {name!r} of {path} is not a list of integers")


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

        read: dict[str, bytes] = {}  # tensors may share a storage

        def storage(key: str, dtype: str) -> np.ndarray:
            if key not in read:
                read[key] = member(f"data/{key}")
                if sum(map(len, read.values())) > LARGEST_MEMBER:
                    raise ValueError(f"its tensors are larger than {LARGEST_MEMBER} bytes")
            return np.frombuffer(read[key], dtype)

        return _load(io.BytesIO(member("data.pkl")), storage)


def _read_legacy(path: Path) -> object:
    def no_storage(key: str, dtype: str) -> np.ndarray:
        raise ValueError("it holds tensors in the format of torch before 1.6; save it again with a newer one")

    with path.open("rb") as file:
        if _load(file, no_storage) != LEGACY_MAGIC:
            raise ValueError("not written by torch.save")
        _load(file, no_storage)  # version of the protocol
        _load(file, no_storage)  # the system that wrote it
        return _load(file, no_storage)


def _load(file: BinaryIO, storage: Callable[[str, str], np.ndarray]) -> object:
    """Load the next pickle of a file after a check of its opcodes."""
    begin = file.tell()
    _check_steps(file)
    file.seek(begin)
    return _Reader(file, storage).load()


def _check_steps(file: BinaryIO) -> None:
    """Refuse a pickle whose time or memory is not bounded by its length.

    Reused tuples can make hashing exponential in the length of the file, deeply nested tuples exhaust the
    stack when hashed, and a large memo index allocates memory for all smaller ones.

    Raises:
        ValueError: The pickle has such a structure, or an opcode that no list, array or tensor needs.
    """
    tuples, memo, former, number_of_tuples = set(), 0, "", 0
    for number, (step, argument, _) in enumerate(pickletools.genops(file)):
        name = step.name
        if name not in STEPS:
            raise ValueError(f"unexpected pickle opcode {name}")
        if number > MOST_STEPS:
            raise ValueError(f"its pickle has more than {MOST_STEPS} opcodes")
        if name in TUPLES:
            number_of_tuples += 1
            if number_of_tuples > MOST_TUPLES:
                raise ValueError(f"its pickle has more than {MOST_TUPLES} tuples")
        elif name in PUTS:
            place = memo if name == "MEMOIZE" else int(argument or 0)
            if place > number:
                raise ValueError(f"memo index {place} after {number} opcodes")
            if former in TUPLES:
                tuples.add(place)
            memo += 1
        elif name in GETS and argument in tuples:
            raise ValueError("its pickle reuses a tuple")
        former = name


class _Reader(pickle.Unpickler):
    """Unpickle integer arrays of numpy and torch by stand-ins, and refuse everything else."""

    def __init__(self, file: IO[bytes], storage: Callable[[str, str], np.ndarray]) -> None:
        super().__init__(file)
        self.storage = storage
        self.stand_ins = _stand_ins()

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        """Return the stand-in for a name. A pickle cannot obtain a callable in any other way."""
        module = module.replace("numpy._core", "numpy.core")  # renamed in numpy 2
        try:
            return self.stand_ins[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is not allowed") from None

    def persistent_load(self, pid: Any) -> Any:  # noqa: ANN401
        """Return the storage of a tensor, which is saved outside of the pickle."""
        kind, storage, key, _location, _count = pid
        if kind != "storage" or not isinstance(key, str | int):
            raise pickle.UnpicklingError("a persistent object other than a tensor storage is not allowed")
        return self.storage(str(int(key)), storage().dtype)


def _stand_ins() -> dict[tuple[str, str], Any]:
    class Dtype:
        """Records an integer type."""

        def __init__(self, code: str, *flags: object) -> None:
            if type(code) is not str or code not in INTEGERS:
                raise ValueError("an array is not of an integer type")
            self.code, self.order = code, "<"

        def __setstate__(self, state: tuple[Any, ...]) -> None:
            if state[1] not in ("<", ">", "|", "="):
                raise ValueError("an array has an unknown byte order")
            self.order = state[1]

    class Array:
        """Records the contents of an array."""

        def __init__(self, *parts: object) -> None:
            self.array = None

        def __setstate__(self, state: tuple[Any, ...]) -> None:
            _version, shape, dtype, _is_fortran, data = state
            if not isinstance(dtype, Dtype) or not isinstance(data, bytes):
                raise ValueError("an array does not hold plain integers")
            self.array = np.frombuffer(data, dtype.order + dtype.code).reshape(shape)

    class Marker:
        """Stands for a class that is named but not used."""

    def encoded(text: str, encoding: str) -> bytes:
        if type(text) is not str:  # str() of cyclic lists may not end
            raise ValueError("bytes are not encoded as text")
        return text.encode("latin1")  # how protocol 2 writes bytes

    def tensor(
        storage: np.ndarray, offset: int, size: tuple[int], stride: tuple[int], *rest: object
    ) -> Array:
        if (
            not isinstance(storage, np.ndarray)
            or len(size) != 1
            or tuple(stride) != (1,)
            or offset < 0
            or offset + size[0] > len(storage)
        ):
            raise ValueError("a tensor is not contiguous and one-dimensional")
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
