"""A data set of Hugging Face in a folder on disk: what `save_to_disk` writes, or Parquet files that were downloaded.

`save_to_disk` of a data set writes `state.json`, which lists its Arrow files; of several splits it writes `dataset_dict.json` and a folder
for each. A folder of Parquet files is one data set, whose splits are the prefixes of their names (`train-00000-of-00002.parquet`) or the
folders they are in.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from proctor.errors import EvidenceError, InputError
from proctor.evidence.values.json_bytes import decode
from proctor.formats.text.row_shapes import Table, TableOptions
from proctor.model.evidence import Json
from proctor.model.show import suggest_one
from proctor.sources.tables.arrow import open_arrow, open_parquet
from proctor.sources.tables.text import MAX_WHOLE, check_size, refuse_at

MAX_FILES = 1_000
"""Files of one data set."""
_SHARD = re.compile(r"(.+?)-\d{5}-of-\d{5}(?:-[0-9a-f]+)?$")

CheckInside = Callable[[Path], None]


def open_folder(folder: Path, label: str, options: TableOptions, check_inside: CheckInside) -> Table:
    """Open the data set in a folder; raises `InputError` if there is none."""
    if (folder / "dataset_dict.json").is_file():
        names = _read_json(folder / "dataset_dict.json", f"{label}/dataset_dict.json", check_inside).get("splits")
        split = _choose_split([str(name) for name in names] if isinstance(names, list) else [], options.split, label)
        # The name comes from the file: a slash in it would lead to another folder.
        if Path(split).name != split:
            raise refuse_at(f"{label}/dataset_dict.json", None, f"{split!r} is no name of a split")
        return _open_saved(folder / split, f"{label}/{split}", options, check_inside)
    if (folder / "state.json").is_file():
        return _open_saved(folder, label, options, check_inside)
    files = sorted(folder.rglob("*.parquet"))[: MAX_FILES + 1]
    if not files:
        raise InputError(f"{label}: a folder without a saved data set: no state.json, no dataset_dict.json and no .parquet file")
    if len(files) > MAX_FILES:
        raise InputError(f"{label}: more than {MAX_FILES:,} Parquet files; name one of its folders")
    by_split: dict[str, list[Path]] = {}
    for file in files:
        check_inside(file)
        by_split.setdefault(_name_split(file, folder), []).append(file)
    chosen = _choose_split(list(by_split), options.split, label)
    labelled = [(file, f"{label}/{file.relative_to(folder).as_posix()}") for file in by_split[chosen]]
    return open_parquet(labelled, options, stem=folder.name if len(by_split) == 1 else f"{folder.name}-{chosen}")


def _open_saved(folder: Path, label: str, options: TableOptions, check_inside: CheckInside) -> Table:
    state = _read_json(folder / "state.json", f"{label}/state.json", check_inside)
    # Older versions of the library store a selection or an order of rows there: without it, other rows would be read.
    if state.get("_indices_data_files"):
        hint = "save it again with a newer version of the library"
        raise refuse_at(f"{label}/state.json", None, "a data set whose rows are chosen by a second file", hint=hint, code="bad_arrow")
    listed = state.get("_data_files")
    names = [entry.get("filename") for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    files: list[tuple[Path, str]] = []
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise refuse_at(f"{label}/state.json", None, f"{name!r} is not the name of a file in its folder")
        check_inside(folder / name)
        if not (folder / name).is_file():
            raise InputError(f"{label}/{name}: no such file, though state.json names it")
        files.append((folder / name, f"{label}/{name}"))
    if not files or len(files) > MAX_FILES:
        raise refuse_at(f"{label}/state.json", None, f"it names {len(files):,} files; expected 1 to {MAX_FILES:,}")
    return open_arrow(files, options, stem=folder.name)


def _read_json(path: Path, label: str, check_inside: CheckInside) -> dict[str, Json]:
    check_inside(path)
    check_size(path, label, MAX_WHOLE)
    try:
        document = decode(path.read_bytes())
    except (OSError, EvidenceError) as error:
        raise refuse_at(label, None, f"cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise refuse_at(label, None, "expected an object")
    return {str(key): value for key, value in document.items()}


def _name_split(file: Path, folder: Path) -> str:
    shard = _SHARD.match(file.stem)
    if shard is not None:
        return shard[1]
    return file.stem if file.parent == folder else file.parent.name


def _choose_split(known: list[str], wanted: str | None, label: str) -> str:
    if wanted is None and len(known) == 1:
        return known[0]
    listed = ", ".join(known) or "none"
    if wanted is None:
        raise InputError(f"{label}: several splits ({listed}); choose one with `split`")
    if wanted not in known:
        raise InputError(f"{label}: there is no split {wanted!r}{suggest_one(wanted, known)}; known: {listed}")
    return wanted
