"""The known data sets: what they are, where their files lie, and how to fetch them.

`datasets.toml` is the list. Files are looked for in `--data-dir`, `$LABELWRIGHT_DATA` and the user
cache, in a folder per data set, packed or not; what is in none of them is downloaded to the cache.
"""

from __future__ import annotations

import functools
import hashlib
import http.client
import tempfile
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from train.data.files import PACKED, open_bytes
from train.errors import DataError, did_you_mean

TIMEOUT_SECONDS = 30
CHUNK_BYTES = 1 << 18
DEFAULT_PROPENSITY = (0.55, 1.5)


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """One file of a data set; `sha256` is that of the unpacked content, empty where unknown."""

    role: str
    """What the reader takes it for, e.g. 'train' or 'labels'."""
    name: str
    sha256: str = ""
    url: str = ""
    """Public address; empty where the file can only be had by hand, from the data set's page."""


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """One entry of `datasets.toml`; sizes are those of all parts together, as read by us."""

    name: str
    title: str
    page: str
    licence: str
    reader: str = ""
    """Which reader of `train.data.sources`; empty for a data set that we cannot read or have."""
    folder: str = ""
    files: tuple[DataFile, ...] = ()
    rows: int = 0
    features: int = 0
    """Feature columns as the model sees them; 0 for text."""
    labels: int = 0
    mean_labels: float = 0.0
    split: str = "60/20/20"
    drop_unlabelled: bool = False
    propensity: tuple[float, float] | None = None
    """A and B of the propensity model of PSP@k, where the literature fixes them."""
    note: str = ""
    """A full sentence about what is peculiar or missing."""


@functools.cache
def known() -> dict[str, DatasetInfo]:
    """Every known data set by its name, in the order of `datasets.toml`."""
    text = package_files("train.data").joinpath("datasets.toml").read_text(encoding="utf-8")
    return {name: _info(name, entry) for name, entry in tomllib.loads(text).items()}


def find_info(name: str) -> DatasetInfo:
    """Look a data set up; capitals do not matter, and a hyphen counts as an underscore."""
    if not is_known(name):
        raise DataError(f"there is no data set {name!r}: {did_you_mean(name, known())}")
    return known()[_key(name)]


def is_known(name: str) -> bool:
    """Whether `find_info` would find it."""
    return _key(name) in known()


def propensity_constants(name: str) -> tuple[float, float]:
    """A and b of the propensity model behind PSP@k, as published results use them."""
    info = known().get(_key(name))
    return (info and info.propensity) or DEFAULT_PROPENSITY


def cache_dir(environ: Mapping[str, str]) -> Path:
    """Where downloads are kept; the XDG base directory rules decide."""
    base = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "labelwright"


def find_files(
    info: DatasetInfo, data_dir: Path | None, environ: Mapping[str, str]
) -> dict[str, Path]:
    """Path of each file that is on this machine, by its role; touches no network."""
    roots = [*_given_folders(data_dir, environ), cache_dir(environ)]
    found = {}
    for file in info.files:
        names = [file.name, *(file.name + suffix for suffix in PACKED)]
        places = (root / info.folder / name for root in roots for name in names)
        path = next((place for place in places if place.is_file()), None)
        if path is not None:
            found[file.role] = path
    return found


def provide_files(
    info: DatasetInfo, data_dir: Path | None, environ: Mapping[str, str]
) -> dict[str, Path]:
    """Path of every file by its role: found and verified, or downloaded.

    Raises:
        DataError: A file is nowhere to be had, or is not the one that was published.
    """
    if not info.files:
        raise DataError(
            f"{info.name} cannot be fetched: {info.note} See {info.page}, convert it to .npz, "
            f".jsonl or another format that we read, and give that file as the data set"
        )
    found = find_files(info, data_dir, environ)
    for file in info.files:
        if file.role in found:
            _verify(found[file.role], file)
    missing = tuple(file for file in info.files if file.role not in found)
    return found | download(info, cache_dir(environ), missing)


def download(
    info: DatasetInfo, cache: Path, files: tuple[DataFile, ...] | None = None
) -> dict[str, Path]:
    """Fetch files of a data set, all unless told, into its folder of the cache; none half-written.

    Raises:
        DataError: No address, no connection, or content other than the published one; the sentence
            says which file to put where by hand.
    """
    files = info.files if files is None else files
    for file in files:
        if not file.url:
            _fail(info, file, cache, f"it has to be had by hand from {info.page}")
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(
        *columns, TransferSpeedColumn(), console=console, disable=not console.is_terminal
    ) as progress:
        return {file.role: _fetch(info, file, cache, progress) for file in files}


def sha256_of(path: Path) -> str:
    """Hash of a file's unpacked content, so that a packed copy has the hash of its original."""
    digest = hashlib.sha256()
    with open_bytes(path) as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _key(name: str) -> str:
    return name.lower().replace("-", "_")


def _info(name: str, entry: dict[str, Any]) -> DatasetInfo:
    base = entry.pop("base", "")
    files = tuple(
        DataFile(**{"url": base + file["name"] if base else "", **file})
        for file in entry.pop("files", ())
    )
    propensity = entry.pop("propensity", None)
    return DatasetInfo(
        name=name,
        folder=entry.pop("folder", name),
        files=files,
        propensity=None if propensity is None else (propensity["a"], propensity["b"]),
        **entry,
    )


def _given_folders(data_dir: Path | None, environ: Mapping[str, str]) -> Iterator[Path]:
    named = {"--data-dir": data_dir, "LABELWRIGHT_DATA": environ.get("LABELWRIGHT_DATA") or None}
    for source, value in named.items():
        if value is None:
            continue
        if not Path(value).is_dir():
            raise DataError(f"{source} is {value}, which is not a folder: name an existing one")
        yield Path(value)


def _verify(path: Path, file: DataFile) -> None:
    if file.sha256 and (actual := sha256_of(path)) != file.sha256:
        raise DataError(
            f"{path} is not the published {file.name} (sha256 {actual[:12]}…, expected "
            f"{file.sha256[:12]}…): replace it, or give your own file's path as the data set"
        )


def _fetch(info: DatasetInfo, file: DataFile, cache: Path, progress: Progress) -> Path:
    packing = Path(file.url).suffix.lower()
    suffix = packing if packing in PACKED and not file.name.endswith(packing) else ""
    target = cache / info.folder / (file.name + suffix)
    try:
        with _written_whole(target) as partial:
            _receive(file, partial, progress)
            if file.sha256 and sha256_of(partial) != file.sha256:
                raise ConnectionError("what came is not the published file: its sha256 differs")
    except urllib.error.HTTPError as error:
        error.close()
        _fail(info, file, cache, f"{file.url} answers {error.code} {error.reason}", error)
    except (OSError, http.client.HTTPException, DataError) as error:
        reason = getattr(error, "reason", error)
        _fail(info, file, cache, f"{file.url} could not be fetched ({reason})", error)
    return target


def _receive(file: DataFile, partial: Path, progress: Progress) -> None:
    # S310 warns of addresses from users; these are from datasets.toml.
    request = urllib.request.Request(file.url, headers={"User-Agent": "labelwright"})  # noqa: S310
    with (
        urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer,  # noqa: S310
        partial.open("wb") as stream,
    ):
        length = int(answer.headers.get("Content-Length") or 0)
        task = progress.add_task(file.name, total=length or None)
        while chunk := answer.read(CHUNK_BYTES):
            stream.write(chunk)
            progress.update(task, advance=len(chunk))
        received = stream.tell()
    if length and received != length:
        raise ConnectionError(f"the connection ended after {received} of {length} bytes")


@contextmanager
def _written_whole(target: Path) -> Iterator[Path]:
    """A file beside the target, moved to its name at the end and removed if anything goes wrong."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".part-") as folder:
        # The name stays, because its ending tells how to unpack.
        partial = Path(folder) / target.name
        yield partial
        partial.replace(target)


def _fail(
    info: DatasetInfo, file: DataFile, cache: Path, why: str, error: Exception | None = None
) -> NoReturn:
    place = cache / info.folder / file.name
    raise DataError(
        f"{info.name} needs {file.name}, but {why}: put the file at {place}, or in {info.folder}/ "
        f"of a folder named by --data-dir"
    ) from error
