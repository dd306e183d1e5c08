"""The files of a data set: Parquet and JSON lines, by path, folder, pattern or address, through the file systems of pyarrow.

Folders are read with everything below them, in the order of their names; names that begin with `.` or `_` are skipped, as in Hive and
Spark. Folders called `key=value` are read like any other. An address (`s3://`, `gs://`, `az://`) contains no keys: the libraries of these
stores find them. `file://` is a path of this machine. A file that is named twice is read once. Other kinds of files are skipped.
"""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit
from urllib.request import url2pathname

import msgspec

from proctor.errors import InputError, MissingExtra
from proctor.model.show import show
from proctor.patterns.globs import compile_glob, matches_glob
from proctor.report.words.wording import count_noun
from proctor.sources.datasets import azure_store

_DATA = re.compile(
    r".*\.(?:(?:json|jsonl|ndjson|parquet|pq|csv|tsv|avro|orc|arrow|feather|log)(?:[-.]\w+)?|gz|zst|zstd|bz2|xz|lz4|snappy|br|zip|tar|tgz)",
    re.IGNORECASE,
)
"""Suffixes of files that may contain traces; other files are ignored."""
_MOST_ENDINGS = 5


_TWO_NAMES = ("file has two names and is", "files have two names and are", "read once: {}")
_LINK = ("link to a folder is", "links to folders are", "not followed: {}; name it as a place of its own")
_BATCH = ("folder holds results of another batch and is", "folders hold results of other batches and are", "not read: {}")
"""What is warned about: one, several, and the rest of the sentence with the first."""


class Skipped:
    """Files that were found but are not read."""

    def __init__(self) -> None:
        self._endings: Counter[str] = Counter()
        self._first = ""
        self._others: dict[tuple[str, str, str], list[str]] = {}

    def note(self, kind: tuple[str, str, str], name: str) -> None:
        """Note a link, a second name or a folder."""
        self._others.setdefault(kind, []).append(name)

    def note_file(self, name: str) -> None:
        """Note a file whose name no reader accepts."""
        base = name.replace(os.sep, "/").rpartition("/")[2]
        if not base.startswith((".", "_")) and _DATA.fullmatch(base):
            self._endings[f".{base.rpartition('.')[2].lower()}"] += 1
            self._first = self._first or name

    def describe(self, suffixes: str) -> Iterator[str]:
        """Yield the warnings for a summary."""
        if self._endings:
            number = self._endings.total()
            listed = ", ".join(f"{ending} ({count:,})" for ending, count in self._endings.most_common(_MOST_ENDINGS))
            verb = "is" if number == 1 else "are"
            yield (
                f"{count_noun(number, 'file')} in the folders {verb} not read: {listed}, for example {self._first}; "
                f"a batch reads files ending in {suffixes}"
            )
        for kind in (_TWO_NAMES, _LINK, _BATCH):
            one, several, rest = kind
            if names := self._others.get(kind):
                yield f"{f'1 {one}' if len(names) == 1 else f'{len(names):,} {several}'} {rest.format(names[0])}"


Kind = Literal["parquet", "lines", "spans", "merged"]
SCHEMES = ("s3", "gs", "gcs", *azure_store.SCHEMES, "file")
"""Stores that pyarrow supports itself."""
SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.zst")
_NAMES = re.compile(r".*(?:(\.parquet|\.pq)|(?:\.jsonl|\.ndjson)(\.gz|\.zst|\.zstd)?)", re.IGNORECASE)
_WILDCARD = re.compile(r"[*?]")


class DataFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a data set, as it was when listed."""

    name: str
    """The name in messages and results."""
    path: str
    """Its path in its file system."""
    root: str = ""
    """The address that opens the file system; empty for this machine."""
    size: int
    modified_ns: int
    kind: Kind
    """`spans` is not a file but a share of the gathered traces; `merged` is a group of small files."""
    codec: Literal["gzip", "zstd"] | None = None
    fault: str | None = None
    """Why the file cannot be read, if already known."""

    @property
    def local_lines(self) -> Path | None:
        """The path of a file of lines on this machine, next to which further files may belong to it."""
        return Path(self.path) if self.kind == "lines" and not self.root else None


def list_files(places: Sequence[str], *, leave_out: str | Path | None = None, left_out: Skipped | None = None) -> list[DataFile]:
    """Return the files of a data set; raises `InputError` if there are none.

    Files in the folder `leave_out` are skipped. Other files that are not read are listed in `left_out`.
    """
    skipped = Skipped() if left_out is None else left_out
    files: dict[tuple[str, ...], DataFile] = {}
    excluded_folder = None if leave_out is None else _identify_folder(leave_out)
    for place in places:
        any_here = False
        for file in _list_place(place, excluded_folder, skipped):
            any_here = True
            first = files.setdefault(_identify(file.root, file.path), file)
            if not file.root and first.path != file.path:
                skipped.note(_TWO_NAMES, f"{file.name} is {first.name}")
        if not any_here:
            raise InputError(f"nothing to read at {place!r}: expected files ending in {', '.join(SUFFIXES)}")
    return list(files.values())


def find_local_path(place: str) -> str | None:
    """Return the path of a local address (`file://`); None for other places. Raises `InputError`."""
    if not place.lower().startswith("file://"):
        return None
    # In a pattern `?` is a wildcard: `urlsplit` would treat the rest as a query and cut it off the path.
    parts = urlsplit(place.replace("?", "%3F"))
    if parts.netloc not in ("", "localhost"):
        raise InputError(f"{place}: expected a file of this machine: file://{parts.path}")
    return url2pathname(parts.path)


def _identify(root: str, path: str) -> tuple[str, ...]:
    """Return the identity of a file, independent of the address under which it was found."""
    if not root:
        return ("", os.path.realpath(path))
    parts = urlsplit(root)
    # Independent of the address: the path begins with the bucket, and one store has several schemes and spellings.
    if parts.scheme in azure_store.SCHEMES:
        return ("az", *azure_store.identify_store(parts), path)
    return ("gs" if parts.scheme == "gcs" else parts.scheme, *(f"{name}={value}" for name, value in sorted(parse_qsl(parts.query))), path)


def _identify_folder(place: str | Path) -> tuple[str, ...]:
    if isinstance(place, Path):
        return _identify("", str(place))
    return _identify(place, open_store(place)[1].rstrip("/"))


def _is_inside(file: tuple[str, ...], folder: tuple[str, ...] | None) -> bool:
    return (
        folder is not None
        and file[:-1] == folder[:-1]
        and (file[-1] + "/").replace(os.sep, "/").startswith(f"{folder[-1]}/".replace(os.sep, "/"))
    )


def name_places(places: Sequence[str]) -> tuple[str, ...]:
    """Return the places of a data set so that they mean the same in any working directory."""
    local = (find_local_path(place) or place for place in places)
    return tuple(place if "://" in place else os.path.abspath(place) for place in local)


def open_file(root: str, path: str) -> Any:
    """Open a file of a data set for reading; raises `OSError`."""
    if not root:
        return import_arrow("pyarrow").OSFile(path, "rb")
    return open_store(root)[0].open_input_file(path)


def find_state(root: str, path: str) -> tuple[int, int]:
    """Return the size and the modification time of a file; raises `OSError` if it is gone."""
    if not root:
        status = os.stat(path)
        return status.st_size, status.st_mtime_ns
    info = open_store(root)[0].get_file_info(path)
    if not info.is_file:
        raise FileNotFoundError(2, "no such file", path)
    return info.size, info.mtime_ns or 0


def import_arrow(module: str) -> Any:
    """Return a module of pyarrow; raises `MissingExtra` if it is not installed."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra("A batch", "data") from error


def _list_place(place: str, inside: tuple[str, ...] | None, skipped: Skipped) -> Iterator[DataFile]:
    if not place.strip() or "\0" in place:
        raise InputError(f"{show(place)} is no place of a data set")
    place = find_local_path(place) or place
    if "://" in place:
        yield from _list_store(place, inside, skipped)
        return
    base = _cut_before_wildcard(place)
    if not os.path.exists(base):
        raise InputError(f"no data set at {place!r}: no such file or folder")
    if _is_batch(base):
        raise InputError(f"{base!r} holds results of a batch, and is no data set; `proctor batch show {base}` shows it")
    listed = [place] if os.path.isfile(place) else _walk_folder(base, inside, skipped)
    parts = None if base == place else compile_glob(os.path.abspath(place))
    for name in listed:
        path = os.path.abspath(name)
        if parts is None or matches_glob(parts, path):
            yield from _check_file(name, path, skipped, named=name == place)


def _check_file(name: str, path: str, skipped: Skipped, *, named: bool) -> Iterator[DataFile]:
    size, modified, fault = 0, 0, None
    try:
        size, modified = find_state("", path)
    except OSError as error:
        fault = f"it cannot be read: {error.strerror}"
    yield from _make_file(name, path, "", size, modified, skipped, named=named, fault=fault)


def _walk_folder(folder: str, inside: tuple[str, ...] | None, skipped: Skipped) -> Iterator[str]:
    # Links to folders are not followed: they may form a cycle.
    for parent, folders, files in os.walk(folder, onerror=_refuse_folder):
        if _is_inside(_identify("", parent), inside):
            folders.clear()
            continue
        if parent != folder and _is_batch(parent):
            skipped.note(_BATCH, parent)
            folders.clear()
            continue
        # Modified in place: `os.walk` continues with this list, in its order.
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        for name in folders:
            if os.path.islink(path := os.path.join(parent, name)):
                skipped.note(_LINK, path)
        yield from (os.path.join(parent, name) for name in sorted(files))


def _refuse_folder(error: OSError) -> None:
    # A folder that is removed while its parent is listed is ignored.
    if not isinstance(error, FileNotFoundError):
        raise InputError(f"cannot list {error.filename!r}: {error.strerror}") from error


def _is_batch(folder: str) -> bool:
    """Return whether a folder is the output of a batch, by the files that each has."""
    return os.path.isfile(os.path.join(folder, "manifest.json")) and os.path.isdir(os.path.join(folder, "suites"))


def _list_store(place: str, inside: tuple[str, ...] | None, skipped: Skipped) -> Iterator[DataFile]:
    # The query is for the file system: `?endpoint_override=...`.
    address, mark, query = place.partition("?")
    base = _cut_before_wildcard(address)
    root = f"{base}{mark}{query}"
    files, path = open_store(root)
    arrow = import_arrow("pyarrow.fs")
    try:
        info = files.get_file_info(path)
        if info.type == arrow.FileType.NotFound:
            raise InputError(f"no data set at {place!r}: nothing is there")
        listed = [info] if info.is_file else files.get_file_info(arrow.FileSelector(path, recursive=True))
    except OSError as error:
        raise InputError(f"cannot list {place!r}: {error}") from error
    scheme = urlsplit(place).scheme
    parts = None if base == address else compile_glob(path.rstrip("/") + address[len(base) :])
    for entry in sorted((entry for entry in listed if entry.is_file), key=lambda entry: entry.path):
        below = entry.path[len(path) :].strip("/")
        hidden = any(part.startswith((".", "_")) for part in below.split("/"))
        if not hidden and not _is_inside(_identify(root, entry.path), inside) and (parts is None or matches_glob(parts, entry.path)):
            name, modified_ns = f"{scheme}://{entry.path}", entry.mtime_ns or 0
            yield from _make_file(name, entry.path, root, entry.size, modified_ns, skipped, named=entry is info)


def _make_file(
    name: str, path: str, root: str, size: int, modified_ns: int, skipped: Skipped, *, named: bool, fault: str | None = None
) -> Iterator[DataFile]:
    base = path.replace(os.sep, "/").rsplit("/", 1)[-1]
    match = _NAMES.fullmatch(base)
    if match is None:
        if named:
            raise InputError(f"{name!r} is no file that a batch reads; expected one ending in {', '.join(SUFFIXES)}")
        skipped.note_file(name)
        return
    if base.startswith((".", "_")) and not named:
        return
    try:
        name.encode()
    except UnicodeEncodeError:
        # The plan and the messages are JSON, in UTF-8.
        raise InputError(f"the name of {show(name)} is no UTF-8 text; rename it") from None
    codec: Any = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", None: None}[match[2] and match[2].lower()]
    kind: Kind = "parquet" if match[1] else "lines"
    yield DataFile(name=name, path=path, root=root, size=size, modified_ns=modified_ns, kind=kind, codec=codec, fault=fault)


def _cut_before_wildcard(place: str) -> str:
    """Return the folder before the first wildcard; a place without wildcards unchanged."""
    first = _WILDCARD.search(place)
    # A file name may contain a `*`: if such a file exists, it is meant.
    if first is None or os.path.exists(place):
        return place
    return place[: first.start()].rpartition("/")[0] or ("/" if place.startswith("/") else ".")


@functools.lru_cache(maxsize=64)
def open_store(address: str) -> tuple[Any, str]:
    """Return the file system of an address and the path in it. Raises `InputError`."""
    parts = urlsplit(address)
    if parts.scheme not in SCHEMES:
        raise InputError(f"{parts.scheme}:// cannot be read; expected a path, or an address of {', '.join(f'{s}://' for s in SCHEMES)}")
    named = any(re.search("key|secret|token|password|credential", name, re.IGNORECASE) for name, _ in parse_qsl(parts.query))
    # Before the `@` is a container of Azure, or the marker of a public bucket.
    known = parts.scheme in azure_store.SCHEMES or (parts.scheme in ("gs", "gcs") and parts.username == "anonymous")
    if (parts.username is not None and not known) or parts.password is not None or named:
        # An address is stored in the manifest and in the shell history.
        raise InputError(f"a key does not belong into an address ({parts.scheme}://…); set it in the environment")
    try:
        arrow = import_arrow("pyarrow.fs")
        return azure_store.open_azure(arrow, parts) if parts.scheme in azure_store.SCHEMES else arrow.FileSystem.from_uri(address)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot open {address!r}: {error}") from error
