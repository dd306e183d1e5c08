"""Opens a cassette, to record it or to play it.

with open_tape("booking.cassette.jsonl", "record", secrets=[key]) as cassette:
    tape = cassette.scope("refund-1", 0)
"""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Literal, overload

from proctor.cassettes.player import Player
from proctor.cassettes.recorder import Recorder

Cassette = Recorder | Player
"""What `open_tape` opens: `scope(case, attempt)` gives the tape of one attempt, `close()` ends it."""


@overload
def open_tape(path: str | PathLike[str], mode: Literal["record"], *, secrets: Iterable[str] = ()) -> Recorder: ...
@overload
def open_tape(path: str | PathLike[str], mode: Literal["replay"], *, secrets: Iterable[str] = ()) -> Player: ...
def open_tape(path: str | PathLike[str], mode: Literal["record", "replay"], *, secrets: Iterable[str] = ()) -> Cassette:
    """Open a cassette. `secrets` are taken out of everything that is written or looked up. Raises `InputError`."""
    return Recorder(Path(path), secrets=secrets) if mode == "record" else Player(Path(path), secrets=secrets)
