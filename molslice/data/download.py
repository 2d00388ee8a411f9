"""Fetching PCQM4M from where OGB keeps it: only when asked, checked by its sum, whole or not at all."""

import hashlib
import os
import shutil
import stat
import sys
import urllib.error
import urllib.request
import uuid
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tqdm import tqdm

from molslice.types import MolsliceError

BLOCK = 1 << 20
TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Archive:
    """A zip file on the network. Source: `ogb/lsc/pcqm4m.py` and `pcqm4mv2.py` of ogb 1.3.6."""

    url: str
    md5: str
    folder: str  # the one folder that it holds


ARCHIVES = {
    "pcqm4m": Archive(
        "https://dgl-data.s3-accelerate.amazonaws.com/dataset/OGB-LSC/pcqm4m_kddcup2021.zip",
        "5144ebaa7c67d24da1a2acbe41f57f6a",
        "pcqm4m_kddcup2021",
    ),
    "pcqm4m-v2": Archive(
        "https://dgl-data.s3-accelerate.amazonaws.com/dataset/OGB-LSC/pcqm4m-v2.zip",
        "65b742bafca5670be4497499db7d361b",
        "pcqm4m-v2",
    ),
}
NEEDED = ("raw/data.csv.gz", "split_dict.pt")


def download(name: str, root: str | os.PathLike[str]) -> Path:
    """Fetch a data set into the folder `root` and return it; nothing is done where it stands already.

    What was fetched before an interruption is kept beside `root` and gone on with. The folder appears under
    its name when it is whole.

    Raises:
        MolsliceError: unknown name, `root` holds something else, the network or the disk fails, or the file
            is not what OGB's checksum says.
    """
    if name not in ARCHIVES:
        raise MolsliceError(f"no download for {name!r}; choices: {', '.join(ARCHIVES)}")
    archive, folder = ARCHIVES[name], Path(root)
    if all((folder / file).is_file() for file in NEEDED):
        return folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise MolsliceError(f"{folder} exists and is not {name}: it lacks {' or '.join(NEEDED)}")
    part = folder.with_name(f"{archive.folder}.zip.part")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _fetch(archive.url, part)
        _check_sum(archive, part)
        _unpack(archive, part, folder)
        part.unlink()
    except OSError as error:  # the network's errors are of this kind too
        reason = error.strerror or getattr(error, "reason", None) or error
        raise MolsliceError(f"{name} could not be put into {folder}: {reason}") from error
    return folder


def _fetch(url: str, part: Path) -> None:
    """Fetch what is not there yet; a server that does not know partial requests sends all again."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing beyond what is there: the checksum will tell
            return
        raise
    with response:
        resumed = have > 0 and getattr(response, "status", None) == 206
        start = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else None
        with (
            part.open("ab" if resumed else "wb") as file,
            tqdm(
                total=total,
                initial=start,
                unit="B",
                unit_scale=True,
                desc=part.stem,
                file=sys.stderr,
                disable=None,
            ) as bar,
        ):
            while block := response.read(BLOCK):
                file.write(block)
                bar.update(len(block))
    if total is not None and part.stat().st_size < total:
        raise MolsliceError(f"{url}: the connection ended early; run it again to go on with {part}")


def _check_sum(archive: Archive, part: Path) -> None:
    with part.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != archive.md5:
        part.unlink()
        raise MolsliceError(
            f"{archive.url} has the MD5 sum {found}, OGB says {archive.md5}; what was fetched is deleted"
        )


def _unpack(archive: Archive, part: Path, folder: Path) -> None:
    unpacked = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.tmp")
    try:
        with zipfile.ZipFile(part) as file:
            for member in file.infolist():
                path = _inner_path(archive, member)
                if path is None or member.is_dir():
                    continue
                target = unpacked.joinpath(*path.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                with file.open(member) as source, target.open("wb") as sink:
                    shutil.copyfileobj(source, sink, BLOCK)
        missing = [name for name in NEEDED if not (unpacked / name).is_file()]
        if missing:
            raise MolsliceError(f"the archive from {archive.url} lacks {', '.join(missing)}")
        os.rename(unpacked, folder)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise MolsliceError(f"the archive from {archive.url} is damaged: {error}") from error
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)


def _inner_path(archive: Archive, member: zipfile.ZipInfo) -> PurePosixPath | None:
    """The path of a member below the archive's folder; None for the folder itself.

    Raises:
        MolsliceError: a path that leads elsewhere, or a link.
    """
    path = PurePosixPath(member.filename.replace("\\", "/"))
    linked = stat.S_ISLNK(member.external_attr >> 16)
    if path.is_absolute() or ".." in path.parts or path.parts[:1] != (archive.folder,) or linked:
        raise MolsliceError(
            f"the archive from {archive.url} holds {member.filename!r}, which leads elsewhere"
        )
    return path.relative_to(archive.folder) if len(path.parts) > 1 else None
