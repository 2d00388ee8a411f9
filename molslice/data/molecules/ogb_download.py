"""Download PCQM4M from OGB's server: only on request, with a checksum, and atomically.

`pooch` could replace the request and the checksum, but it restarts an interrupted download from the
beginning. Here the second call continues, which matters for archives of this size. The archive is unpacked
completely or not at all, with checks of its members.
"""

import hashlib
import os
import shutil
import stat
import urllib.error
import urllib.request
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from molslice.files.atomic import atomic_folder, is_taken, reserved
from molslice.files.progress import BYTES, Progress
from molslice.types import MolsliceError

BLOCK = 1 << 20
TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Archive:
    """A zip file on OGB's server.

    Attributes:
        url: Address of the file.
        md5: Checksum that OGB publishes.
        folder: The only top-level folder in the archive.

    Source: `ogb/lsc/pcqm4m.py` and `pcqm4mv2.py` of ogb 1.3.6.
    """

    url: str
    md5: str
    folder: str


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
    """Download `pcqm4m` or `pcqm4m-v2` to the folder `root`, unless it is complete, and return the folder.

    An interrupted download is kept beside the folder and resumed. The folder appears only when it is
    complete.

    Raises:
        MolsliceError: The name is unknown, the folder has other contents, the network or the disk failed,
            another process downloads the same archive, or the checksum is wrong.
    """
    if name not in ARCHIVES:
        raise MolsliceError(f"no download for {name!r}; choices: {', '.join(ARCHIVES)}")
    archive, folder = ARCHIVES[name], Path(root)
    if all((folder / file).is_file() for file in NEEDED):
        return folder
    if is_taken(folder):
        raise MolsliceError(f"{folder} exists but is not {name}: it lacks {' or '.join(NEEDED)}")
    partial_file = folder.with_name(f"{archive.folder}.zip.part")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with reserved(partial_file):
            _fetch(archive.url, partial_file)
            _check_sum(archive, partial_file)
            _unpack(archive, partial_file, folder)
            partial_file.unlink()
    except OSError as error:  # includes network errors
        reason = error.strerror or getattr(error, "reason", None) or error
        raise MolsliceError(f"cannot download {name} to {folder}: {reason}") from error
    return folder


def _fetch(url: str, partial_file: Path) -> None:
    """Download the missing bytes; a server without partial requests sends the whole file again."""
    have = partial_file.stat().st_size if partial_file.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # already complete; the checksum decides
            return
        raise
    with response:
        resumed = have > 0 and getattr(response, "status", None) == 206
        start = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else None
        with (
            partial_file.open("ab" if resumed else "wb") as file,
            Progress(partial_file.stem, total, BYTES, done=start) as bar,
        ):
            while block := response.read(BLOCK):
                file.write(block)
                bar.update(len(block))
    if total is not None and partial_file.stat().st_size < total:
        raise MolsliceError(
            f"the connection to {url} ended early; run the command again to resume {partial_file}"
        )


def _check_sum(archive: Archive, partial_file: Path) -> None:
    with partial_file.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if digest != archive.md5:
        partial_file.unlink()
        raise MolsliceError(
            f"wrong MD5 checksum of {archive.url}: {digest} instead of {archive.md5}; the file was deleted"
        )


def _unpack(archive: Archive, partial_file: Path, folder: Path) -> None:
    try:
        with atomic_folder(folder) as unpacked, zipfile.ZipFile(partial_file) as file:
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
                raise MolsliceError(f"{', '.join(missing)} missing in the archive from {archive.url}")
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise MolsliceError(f"the archive from {archive.url} is damaged: {error}") from error


def _inner_path(archive: Archive, member: zipfile.ZipInfo) -> PurePosixPath | None:
    """Return the path of a member relative to the archive's folder; None for the folder itself."""
    path = PurePosixPath(member.filename.replace("\\", "/"))
    linked = stat.S_ISLNK(member.external_attr >> 16)
    if path.is_absolute() or ".." in path.parts or path.parts[:1] != (archive.folder,) or linked:
        raise MolsliceError(
            f"the archive from {archive.url} holds {member.filename!r}, which is outside its folder or a link"
        )
    return path.relative_to(archive.folder) if len(path.parts) > 1 else None
