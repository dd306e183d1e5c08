"""The files of a data set: Parquet and JSON lines, by path, folder, pattern or address, through the file systems of pyarrow.

Folders are read with everything below them, in the order of their names; names that begin with `.` or `_` are no data, as Hive and Spark
have it. Folders that are called `key=value` are folders like any other. An address (`s3://`, `gs://`, `az://`, `file://`) carries no
keys: they are found where the libraries of these stores look for them.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

import msgspec

from proctor.errors import InputError, MissingExtra
from proctor.model.show import show
from proctor.patterns.globs import compile_glob, matches_glob
from proctor.sources import azure_store

Kind = Literal["parquet", "lines", "spans"]
SCHEMES = ("s3", "gs", "gcs", *azure_store.SCHEMES, "file")
"""Stores that pyarrow reads by itself."""
SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.zst")
_NAMES = re.compile(r".*(?:(\.parquet|\.pq)|(?:\.jsonl|\.ndjson)(\.gz|\.zst|\.zstd)?)", re.IGNORECASE)
_WILDCARD = re.compile(r"[*?]")


class DataFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a data set, as it was when it was listed."""

    name: str
    """How messages and results show it."""
    path: str
    """Its place in its file system."""
    root: str = ""
    """The address that opens the file system; empty for this machine."""
    size: int
    modified_ns: int
    kind: Kind
    """`spans` is no file: one share of the traces whose spans were gathered."""
    codec: Literal["gzip", "zstd"] | None = None


def list_files(places: Sequence[str], *, leave_out: Path | None = None) -> list[DataFile]:
    """Return the files of a data set; raises `InputError` where there is nothing. What lies in the folder `leave_out` is no part of it."""
    found: dict[tuple[str, str], DataFile] = {}
    inside = None if leave_out is None else f"{os.path.abspath(leave_out)}{os.sep}"
    for place in places:
        before = len(found)
        for file in _list_place(place):
            if inside is None or file.root or not file.path.startswith(inside):
                found.setdefault((file.root, file.path), file)
        if len(found) == before and not any(_is_at(file, place) for file in found.values()):
            raise InputError(f"nothing to read at {place!r}: expected files ending in {', '.join(SUFFIXES)}")
    return list(found.values())


def name_places(places: Sequence[str]) -> tuple[str, ...]:
    """Return the places of a data set, told so that they mean the same wherever the command is given."""
    return tuple(place if "://" in place else os.path.abspath(place) for place in places)


def open_file(root: str, path: str) -> Any:
    """Open a file of a data set for reading; raises `OSError`."""
    if not root:
        return import_arrow("pyarrow").OSFile(path, "rb")
    return open_store(root)[0].open_input_file(path)


def find_state(root: str, path: str) -> tuple[int, int]:
    """Return the size of a file and when it was changed; raises `OSError` where it is gone."""
    if not root:
        status = os.stat(path)
        return status.st_size, status.st_mtime_ns
    found = open_store(root)[0].get_file_info(path)
    if not found.is_file:
        raise FileNotFoundError(2, "no such file", path)
    return found.size, found.mtime_ns or 0


def import_arrow(module: str) -> Any:
    """Return a module of pyarrow; raises `MissingExtra` where it is not installed."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra("a batch", "data") from error


def _is_at(file: DataFile, place: str) -> bool:
    """Return whether a file was found under an earlier name of the same place."""
    return not file.root and "://" not in place and (file.path + os.sep).startswith(os.path.abspath(place).rstrip(os.sep) + os.sep)


def _list_place(place: str) -> Iterator[DataFile]:
    if not place.strip() or "\0" in place:
        raise InputError(f"{show(place)} is no place of a data set")
    if "://" in place:
        yield from _list_store(place)
        return
    base = _cut_before_wildcard(place)
    if not os.path.exists(base):
        raise InputError(f"no data set at {place!r}: no such file or folder")
    listed = [place] if os.path.isfile(place) else _walk_folder(base)
    parts = None if base == place else compile_glob(os.path.abspath(place))
    for name in listed:
        path = os.path.abspath(name)
        if parts is None or matches_glob(parts, path):
            size, modified = find_state("", path)
            yield from _make_file(name, path, "", size, modified, named=name == place)


def _walk_folder(folder: str) -> Iterator[str]:
    # Links to folders are not followed: they may form a circle.
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        yield from (os.path.join(here, name) for name in sorted(files) if _is_data(name))


def _list_store(place: str) -> Iterator[DataFile]:
    # What stands behind a question mark is for the file system: `?endpoint_override=...`.
    address, mark, query = place.partition("?")
    base = _cut_before_wildcard(address)
    root = f"{base}{mark}{query}"
    files, path = open_store(root)
    arrow = import_arrow("pyarrow.fs")
    try:
        found = files.get_file_info(path)
        if found.type == arrow.FileType.NotFound:
            raise InputError(f"no data set at {place!r}: nothing is there")
        inside = [found] if found.is_file else files.get_file_info(arrow.FileSelector(path, recursive=True))
    except OSError as error:
        raise InputError(f"cannot list {place!r}: {error}") from error
    scheme = urlsplit(place).scheme
    parts = None if base == address else compile_glob(path.rstrip("/") + address[len(base) :])
    for one in sorted((one for one in inside if one.is_file), key=lambda one: one.path):
        below = one.path[len(path) :].strip("/")
        hidden = any(part.startswith((".", "_")) for part in below.split("/"))
        if not hidden and (parts is None or matches_glob(parts, one.path)):
            yield from _make_file(f"{scheme}://{one.path}", one.path, root, one.size, one.mtime_ns or 0, named=one is found)


def _make_file(name: str, path: str, root: str, size: int, modified_ns: int, *, named: bool) -> Iterator[DataFile]:
    match = _NAMES.fullmatch(path.rsplit("/", 1)[-1])
    if match is None:
        if named:
            raise InputError(f"{name!r} is no file that a batch reads; expected one ending in {', '.join(SUFFIXES)}")
        return
    codec: Any = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", None: None}[match[2] and match[2].lower()]
    kind: Kind = "parquet" if match[1] else "lines"
    yield DataFile(name=name, path=path, root=root, size=size, modified_ns=modified_ns, kind=kind, codec=codec)


def _is_data(name: str) -> bool:
    return not name.startswith((".", "_")) and _NAMES.fullmatch(name) is not None


def _cut_before_wildcard(place: str) -> str:
    """Return the folder in which a pattern begins to be one; a place without wildcards as it is."""
    first = _WILDCARD.search(place)
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
    # What stands before the `@` is a container of Azure, or says that a bucket is open to everybody.
    known = parts.scheme in azure_store.SCHEMES or (parts.scheme in ("gs", "gcs") and parts.username == "anonymous")
    if (parts.username is not None and not known) or parts.password is not None or named:
        # What stands in a command stands in its manifest and in the history of a shell, too.
        raise InputError(f"a key does not belong into an address ({parts.scheme}://…); set it in the environment")
    try:
        arrow = import_arrow("pyarrow.fs")
        return azure_store.open_azure(arrow, parts) if parts.scheme in azure_store.SCHEMES else arrow.FileSystem.from_uri(address)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot open {address!r}: {error}") from error
