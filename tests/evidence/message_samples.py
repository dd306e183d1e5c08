"""Message lists of real packages with the truth about them, as `frameworks/messages` keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

FOLDER = Path(__file__).parent / "frameworks" / "messages"


def truths() -> dict[str, dict[str, Any]]:
    """The facts of each sample, by file name."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(FOLDER.glob("truth*.json")):
        found.update(msgspec.json.decode(path.read_bytes()))
    return found


def documents(name: str) -> dict[str, Any]:
    """The documents of a sample, by scenario."""
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes())


TRUTHS = truths()
NAMES = sorted(name for name in TRUTHS if (FOLDER / f"{name}.json").exists())
