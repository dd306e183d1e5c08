"""Limits for every example: two seconds of CPU, 200 MB of memory, and only errors made for users."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

CPU_S = 2.0
MEMORY_BYTES = 200_000_000
EXAMPLES = int(os.environ.get("PROCTOR_FUZZ_EXAMPLES", "1000"))
"""How many examples altogether; `make torture` has a hundred thousand."""
SEED = int(os.environ.get("PROCTOR_FUZZ_SEED", "1"))
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


class TooSlow(BaseException):
    """An example that does not end; nothing that is examined may catch this."""


def _stop(number: int, frame: object) -> None:
    raise TooSlow


def examine_all(examples: Iterable[Any], use: Callable[[Any], None]) -> None:
    """Use every example, then report each kind of failure with its first example."""
    found: dict[str, str] = {}
    before = signal.signal(signal.SIGVTALRM, _stop)
    try:
        for number, example in enumerate(examples):
            failure = _failure(example, use)
            if failure is not None:
                kind, details = failure
                found.setdefault(kind, f"example {number} of seed {SEED}: {details}\n{shown(example)}")
    finally:
        signal.signal(signal.SIGVTALRM, before)
    assert not found, f"{len(found)} kinds of failure\n" + "\n\n".join(f"{kind}\n{details}" for kind, details in found.items())


def _failure(example: Any, use: Callable[[Any], None]) -> tuple[str, str] | None:
    """Return the kind of failure and its details, or None."""
    before = _memory(reset=True)
    began = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S * 1.5)
    try:
        use(example)
    except TooSlow as error:
        return f"does not end in {_place(error)}", "it was interrupted"
    except Exception as error:
        return f"{type(error).__name__} in {_place(error)}", str(error)[:2_000]
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    took, more = time.process_time() - began, _memory() - before
    if took >= CPU_S:
        return "too slow", f"it took {took:.1f} s"
    if more >= MEMORY_BYTES:
        return "too large", f"it took {more >> 20} MB"
    return None


def _place(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "proctor" in frame.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "a test"


def shown(example: Any) -> str:
    """The example, as far as it can be read."""
    text = repr(example)
    return text if len(text) < 4_000 else f"{text[:4_000]}... ({len(text)} characters)"


def _memory(*, reset: bool = False) -> int:
    """The peak memory of this process since the last reset; 0 if the system does not report it."""
    if not _CLEAR.exists():
        return 0
    if reset:
        _CLEAR.write_text("5")
    text = _STATUS.read_text()
    at = text.index("VmHWM:")
    return int(text[at + 6 : text.index("kB", at)]) * 1024
