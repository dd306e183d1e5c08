"""What the judge of a batch answered, kept in the output: a batch that goes on, from any machine, pays for no question twice.

In a folder of this machine the judge keeps its own files there. An object store gets them in packs, one for each round of questions, and
whoever goes on unpacks them into a folder of its own. What a killed process had not packed yet is asked again.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import tempfile
from collections.abc import Generator
from pathlib import Path

import msgspec

from proctor.batches.output.output_store import OutputStore, write_bytes
from proctor.errors import InputError
from proctor.model.typed import decode_msgpack

FOLDER = "judge"
_NAME = re.compile(r"[0-9a-f]{2}/[0-9a-f]{8,128}\.json")
"""Of a reply, as the judge's own files are called: anything else in a pack is not written anywhere."""
_MOST_PACKS = 20
"""Packs from which on they are made one."""


class JudgeMemory:
    """The memory of one batch while a judge is asked."""

    def __init__(self, store: OutputStore, path: Path, *, is_packed: bool) -> None:
        self.path = path
        """The folder below which the judge keeps its files."""
        self._store = store
        self._is_packed = is_packed
        self._known: set[str] = set()
        self._packs: list[str] = []
        if is_packed:
            self._unpack()

    def keep(self) -> None:
        """Keep what the judge answered since the last time."""
        new = [name for name in self._list_files() if name not in self._known] if self._is_packed else []
        if new:
            self._put(new)

    def finish(self) -> None:
        """Keep the rest, and make one pack of very many."""
        self.keep()
        if len(self._packs) > _MOST_PACKS:
            old = list(self._packs)
            # The whole before the parts go: whoever is killed between the two leaves answers twice, which does no harm.
            self._put(sorted(self._known))
            for name in old:
                self._store.delete(name)

    def _unpack(self) -> None:
        self._packs = [f"{FOLDER}/{name}" for name in self._store.list(FOLDER) if name.endswith(".pack")]
        for pack in self._packs:
            data = self._store.read(pack)
            with contextlib.suppress(msgspec.MsgspecError):
                # One that cannot be read is as if it were not there: its questions are asked again.
                for name, reply in decode_msgpack(data or b"", dict[str, bytes]).items():
                    # A pack comes from a store that others can write to: any other name could lead out of the folder.
                    if _NAME.fullmatch(name):
                        file = self.path / FOLDER / name
                        file.parent.mkdir(parents=True, exist_ok=True)
                        file.write_bytes(reply)
                        self._known.add(name)

    def _list_files(self) -> list[str]:
        root = self.path / FOLDER
        return sorted(name for file in root.rglob("*.json") if _NAME.fullmatch(name := file.relative_to(root).as_posix()))

    def _put(self, names: list[str]) -> None:
        pack = f"{FOLDER}/{secrets.token_hex(8)}.pack"
        replies = {name: (self.path / FOLDER / name).read_bytes() for name in names}
        write_bytes(self._store, pack, msgspec.msgpack.encode(replies))
        self._known.update(names)
        self._packs.append(pack)


@contextlib.contextmanager
def open_memory(store: OutputStore, place: str | Path) -> Generator[JudgeMemory]:
    """Open the memory of the output of a batch, which is a folder of this machine or an address."""
    if isinstance(place, Path):
        yield JudgeMemory(store, place, is_packed=False)
        return
    with tempfile.TemporaryDirectory(prefix="proctor-judge-") as folder:
        try:
            memory = JudgeMemory(store, Path(folder), is_packed=True)
        except OSError as error:
            raise InputError(f"cannot read {place!r}: {error}") from error
        yield memory
