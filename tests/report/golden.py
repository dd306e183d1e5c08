"""Golden files. `PROCTOR_REGEN=1` rewrites them; review the difference before you commit it."""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).parent / "golden"


def assert_golden(name: str, text: str) -> None:
    """The text equals `golden/<name>`."""
    path = HERE / name
    if os.environ.get("PROCTOR_REGEN") == "1":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; PROCTOR_REGEN=1 rewrites it"
