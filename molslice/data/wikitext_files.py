"""The files of WikiText and other texts: where they are, their lines, and how they are fetched."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from molslice.data.hub import claim_folder, download_folder, keep_file, load_hub
from molslice.data.lexicon import Line
from molslice.data.lines import read_byte_lines, read_lines
from molslice.data.parquet import read_parquet
from molslice.types import MolsliceError

__all__ = ["BY_HAND", "download_wikitext", "find_texts", "read_text"]

PARQUET_MAGIC = b"PAR1"
COLUMN = "text"
VERSIONS = (2, 103)
HUB = "Salesforce/wikitext"  # where Hugging Face keeps it
HUB_SPLITS = {"train": "train", "valid": "validation", "test": "test"}
BY_HAND = (
    "By hand: the Parquet files of https://huggingface.co/datasets/Salesforce/wikitext; data.train_path "
    "names any other text"
)
HOW_TO_GET = f"`molslice prepare --config FILE --download` fetches WikiText into data.root. {BY_HAND}"


def find_texts(
    root: Path | None, given: Mapping[str, Path], tokens: str, version: int
) -> dict[str, Sequence[Path]]:
    """The files of each split: those that are given, and in the folder `root` those of the others.

    Raises:
        MolsliceError: no text to train on, a version that there is not, or no such folder or file.
    """
    _check_version(version)
    if root is None and "train" not in given:
        raise MolsliceError(f"data.root or data.train_path must name a text to train on; {HOW_TO_GET}")
    if root is not None and not root.is_dir():
        raise MolsliceError(f"no such folder: {root}; {HOW_TO_GET}")
    for path in given.values():
        if not path.is_file():
            raise MolsliceError(f"no such file: {path}")
    found: dict[str, Sequence[Path]] = {split: [path] for split, path in given.items()}
    for split in HUB_SPLITS:
        if split not in found and root is not None and (files := _in_folder(root, split, tokens)):
            found[split] = files
    if "train" not in found:
        raise MolsliceError(
            f"{root} holds no wiki.train.tokens, wiki.train.raw (also .gz) or train*.parquet; {HOW_TO_GET}"
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
    """The lines of a text, without their ends; of a Parquet file the rows of its column `text`.

    Raises:
        MolsliceError: damaged, not UTF-8, or no such column.
    """
    if _is_parquet(path):
        for rows in read_parquet(path, [COLUMN]):
            for row in rows[COLUMN]:  # a row of WikiText is a line with its end, or nothing
                yield from str(row or "").removesuffix("\n").split("\n")
    else:
        yield from read_byte_lines(path) if as_bytes else read_lines(path)


def _is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
    except OSError as error:
        raise MolsliceError(f"{path} does not read: {error.strerror}") from error


def _check_version(version: object) -> None:
    if version not in VERSIONS:
        raise MolsliceError(f"version is {version!r}; choices: {', '.join(map(str, VERSIONS))}")


def download_wikitext(options: Mapping[str, Any]) -> None:
    r"""Fetch the three files of WikiText-2 or WikiText-103 into `root`; what stands there is not fetched.

    For words as `.tokens`, with `<unk>` for rare ones, otherwise as `.raw`, as they were written. The Hub has
    each line with its end, and "" for the line " \n": the files come out as they were.

    Raises:
        MolsliceError: no `root`, an unknown version, a `root` with the other one, the library is missing, the
            network or the disk fails.
    """
    version = options.get("version", 103)
    _check_version(version)
    root = download_folder(options)
    source = {"hub": HUB, "subset": f"wikitext-{version}"}  # .tokens and .raw may lie side by side
    claim_folder(root, source)
    ending, subset = ("tokens", "v1") if options.get("tokens", "words") == "words" else ("raw", "raw-v1")
    files = {split: root / f"wiki.{split}.{ending}" for split in HUB_SPLITS}
    missing = {HUB_SPLITS[split]: path for split, path in files.items() if not path.is_file()}
    if missing:
        tables = load_hub(HUB, list(missing), f"{source['subset']}-{subset}")
        claim_folder(root, source, fetched=not any(_in_folder(root, split, "words") for split in HUB_SPLITS))
        for split, rows in tables.items():
            keep_file(missing[split], lambda path, rows=rows: _write_lines(path, rows))


def _write_lines(path: Path, rows: Iterable[Mapping[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(row[COLUMN] or " \n" for row in rows)
