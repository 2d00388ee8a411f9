"""Find, read and download the files of WikiText and other texts."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from molslice.data.text.lexicon import Line
from molslice.files.atomic import atomic_file
from molslice.files.hub import claim_folder, download_folder, load_hub
from molslice.files.lines import read_byte_lines, read_lines
from molslice.files.tables.parquet import read_parquet
from molslice.types import MolsliceError

__all__ = ["BY_HAND", "download_wikitext", "find_texts", "read_text"]

PARQUET_MAGIC = b"PAR1"
COLUMN = "text"
VERSIONS = (2, 103)
HUB = "Salesforce/wikitext"  # name on the Hugging Face Hub
HUB_SPLITS = {"train": "train", "valid": "validation", "test": "test"}
BY_HAND = (
    "By hand: download the Parquet files of https://huggingface.co/datasets/Salesforce/wikitext, or set "
    "data.train_path to any other text"
)
INSTRUCTIONS = f"`molslice prepare --config FILE --download` downloads WikiText into data.root. {BY_HAND}"


def find_texts(
    root: Path | None, given: Mapping[str, Path], tokens: str, version: int
) -> dict[str, Sequence[Path]]:
    """Find the files of each split.

    Args:
        root: Folder for the splits without a given file.
        given: File of each split that has one.
        tokens: Kind of the tokens; words prefer `.tokens` to `.raw`.
        version: Version of WikiText, which is only checked.

    Raises:
        MolsliceError: There is no training text, the version is unknown, or a folder or file is missing.
    """
    _check_version(version)
    if root is None and "train" not in given:
        raise MolsliceError(f"set data.root or data.train_path to a training text. {INSTRUCTIONS}")
    if root is not None and not root.is_dir():
        raise MolsliceError(f"no such folder: {root}. {INSTRUCTIONS}")
    for path in given.values():
        if not path.is_file():
            raise MolsliceError(f"no such file: {path}")
    found: dict[str, Sequence[Path]] = {split: [path] for split, path in given.items()}
    for split in HUB_SPLITS:
        if split not in found and root is not None and (files := _in_folder(root, split, tokens)):
            found[split] = files
    if "train" not in found:
        raise MolsliceError(
            f"{root} has no wiki.train.tokens, wiki.train.raw (also .gz) or train*.parquet. {INSTRUCTIONS}"
        )
    return found


def _in_folder(root: Path, split: str, tokens: str) -> Sequence[Path]:
    endings = ("tokens", "raw") if tokens == "words" else ("raw", "tokens")
    for ending in endings:
        for path in (root / f"wiki.{split}.{ending}", root / f"wiki.{split}.{ending}.gz"):
            if path.is_file():
                return [path]
    return sorted(root.glob(f"{split}*.parquet"))


def read_text(path: Path, *, as_bytes: bool = False) -> Iterator[Line]:
    """Yield the lines of a text without line ends; for Parquet, those of the column `text`.

    Args:
        path: The file.
        as_bytes: Whether to yield bytes instead of text, except for Parquet.

    Raises:
        MolsliceError: The file is damaged, is not UTF-8, or lacks the column.
    """
    if _is_parquet(path):
        for rows in read_parquet(path, [COLUMN]):
            for row in rows[COLUMN]:  # a row of WikiText is a line with its line end, or empty
                yield from str(row or "").removesuffix("\n").split("\n")
    else:
        yield from read_byte_lines(path) if as_bytes else read_lines(path)


def _is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
    except OSError as error:
        raise MolsliceError(f"cannot read {path}: {error.strerror}") from error


def _check_version(version: object) -> None:
    if version not in VERSIONS:
        raise MolsliceError(f"invalid version {version!r}; choices: {', '.join(map(str, VERSIONS))}")


def download_wikitext(options: Mapping[str, Any]) -> None:
    r"""Download the three files of WikiText-2 or WikiText-103 into `root`; existing files are kept.

    The files are `.tokens` for words, with `<unk>` for rare ones, otherwise `.raw`. On the Hub each line has
    its line end, and the line " \n" is empty; the written files equal the original ones.

    Args:
        options: The options of the data set.

    Raises:
        MolsliceError: `root` is not set or contains another version, the version is unknown, `datasets` is
            not installed, or the network or the disk failed.
    """
    version = options.get("version", 103)
    _check_version(version)
    root = download_folder(options)
    source = {"hub": HUB, "subset": f"wikitext-{version}"}  # .tokens and .raw may be in the same folder
    claim_folder(root, source)
    ending, subset = ("tokens", "v1") if options.get("tokens", "words") == "words" else ("raw", "raw-v1")
    files = {split: root / f"wiki.{split}.{ending}" for split in HUB_SPLITS}
    missing = {HUB_SPLITS[split]: path for split, path in files.items() if not path.is_file()}
    if missing:
        tables = load_hub(HUB, list(missing), f"{source['subset']}-{subset}")
        claim_folder(root, source, fetched=not any(_in_folder(root, split, "words") for split in HUB_SPLITS))
        for split, rows in tables.items():
            with atomic_file(missing[split]) as stream:
                stream.writelines((row[COLUMN] or " \n").encode() for row in rows)
