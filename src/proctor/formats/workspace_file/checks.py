"""What the workspace file alone may say of own checks: which Python files hold them, and how long one may take."""

from __future__ import annotations

from typing import Final

import msgspec

from proctor.formats.text.located import Located, Reading

CHECK_TIMEOUT_S: Final = 10.0
"""Default limit in seconds of one custom check on one evidence."""
_MOST_S: Final = 86_400.0


class OwnCheckSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The `checks:` section of a workspace file."""

    files: tuple[str, ...] = ()
    """Python files with own checks, from the folder of the workspace file."""

    timeout_s: float = CHECK_TIMEOUT_S
    """Seconds that one of them may take on one evidence."""


def read_own_check_settings(node: Located | None, reading: Reading) -> OwnCheckSettings:
    """Return the `checks:` section: one file, a list of them, or `files` and `timeout_s`."""
    if node is None:
        return OwnCheckSettings()
    if not node.is_object:
        return OwnCheckSettings(files=_read_files(node, reading))
    reading.check_keys(node, ("files", "timeout_s"), "checks")
    files, limit = node.get("files"), node.get("timeout_s")
    seconds = reading.number(limit, "checks.timeout_s")
    if limit is not None and seconds is not None and not 0 < seconds <= _MOST_S:
        reading.error(limit, f"checks.timeout_s: expected seconds above 0 and at most {_MOST_S:,.0f}, found {seconds:g}")
    return OwnCheckSettings(
        files=_read_files(files, reading) if files is not None else (),
        timeout_s=float(seconds) if seconds is not None else CHECK_TIMEOUT_S,
    )


def _read_files(node: Located, reading: Reading) -> tuple[str, ...]:
    listed = [node] if isinstance(node.value, str) else list(node.items()) if reading.require_list(node, "checks") is not None else []
    files: list[str] = []
    for item in listed:
        name = reading.require_text(item, "checks")
        if name is None:
            continue
        if not name.endswith(".py"):
            reading.error(item, f"checks: expected a Python file such as checks.py, found {name!r}", code="wrong_type")
        files.append(name)
    return tuple(files)
