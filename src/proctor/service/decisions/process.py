"""Deciding in a process of its own, beside the one that answers requests: `python -m proctor.service.decisions.process [MEMORY [NICE]]`.

It uses another core; what ends it (memory, a bug in C code) ends nothing else; and it can be interrupted in the middle of a case. Frames
come in by standard input and go out by standard output: four bytes of length, then MessagePack. Each trace or record is answered before the
next one is begun, so that whoever waits knows which one it was that ended it. It ends with its input.

`MEMORY` is how many bytes of data it may hold at most, `NICE` by how much it stands back behind other processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import BinaryIO

import msgspec

from proctor.model.typed import make_msgpack_decoder
from proctor.service.decisions.messages import Answer, Job
from proctor.service.decisions.record_verdicts import CaseDecider
from proctor.service.decisions.trace_verdicts import Batch, Limit, OutOfTime, TraceDecider

READY = b"ready"
"""The first frame that it sends."""
_AGAIN_S = 1.0
_WORN_OUT_BYTES = 400_000_000
"""From how much memory on a process that answered a request is replaced: what it needed once it seldom gives back."""


def make_frame(data: bytes) -> bytes:
    """Return the data as a frame."""
    return len(data).to_bytes(4, "big") + data


def main() -> None:
    """Decide what comes in, until the input ends."""
    # Signals are for whoever started this, who ends it by ending its input; standard output is for frames only.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    _volunteer_for_oom()
    _limit_process([int(word) for word in sys.argv[1:3] if word.isdecimal()])
    _widen_pipes(0, out)
    limit = _make_time_limit()
    decider, cases = TraceDecider(limit=limit), CaseDecider(limit=limit)
    encode = msgspec.msgpack.Encoder().encode
    read = make_msgpack_decoder(Batch | Job).decode
    with contextlib.suppress(BrokenPipeError):
        _send_frame(out, READY)
        while (frame := _read_frame(sys.stdin.buffer)) is not None:
            asked = read(frame)
            if isinstance(asked, Batch):
                for decision in decider.decide(asked):
                    _send_frame(out, encode(decision))
            elif not _do_job(cases, asked, lambda answer: _send_frame(out, encode(answer))):
                return


def _do_job(cases: CaseDecider, job: Job, tell: Callable[[Answer], None]) -> bool:
    """Answer a job and return whether there may be another one."""
    left = len(job.works)
    for answer in cases.answer_job(job):
        left -= 1
        last = left == 0 and (cases.exhausted or _measure_peak_bytes() > _WORN_OUT_BYTES)
        tell(msgspec.structs.replace(answer, last=True) if last else answer)
        if last:
            return False
    return True


def _measure_peak_bytes() -> int:
    """Return the most bytes of memory that this process ever used; 0 where nobody knows."""
    try:
        import resource  # not everywhere
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _limit_process(bounds: list[int]) -> None:
    """Bound the memory of this process, and let those that answer requests have the processor first."""
    try:
        import resource  # not everywhere
    except ImportError:
        return
    if bounds:
        with contextlib.suppress(OSError, ValueError):
            # Data and not address space: threads and libraries map far more of that than they ever use.
            resource.setrlimit(resource.RLIMIT_DATA, (bounds[0], bounds[0]))
    if len(bounds) > 1:
        with contextlib.suppress(OSError):
            os.nice(bounds[1])


def _read_frame(source: BinaryIO) -> bytes | None:
    size = source.read(4)
    if len(size) < 4:
        return None
    length = int.from_bytes(size, "big")
    data = source.read(length)
    # Cut off in the middle: whoever sent it has gone, which is the end of the input.
    return data if len(data) == length else None


def _send_frame(out: int, data: bytes) -> None:
    left = memoryview(make_frame(data))
    while left:
        left = left[os.write(out, left) :]


def _make_time_limit() -> Limit:
    """Return a limit in seconds of computing, kept by a timer of the system; no limit where there is no such timer."""
    if not hasattr(signal, "setitimer"):
        return contextlib.nullcontext

    def ring(number: int, frame: FrameType | None) -> None:
        raise OutOfTime

    # A timer of the time that this process computes: on a busy machine a record is not blamed for its neighbours.
    signal.signal(signal.SIGVTALRM, ring)

    return _TimeLimit


class _TimeLimit:
    """Rings when what is done in it takes more than some seconds of computing."""

    # Not a generator: it is entered several times for every trace, and this takes a fifth of the time.
    __slots__ = ("_seconds",)

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        # Again and again: somebody may have held it up.
        signal.setitimer(signal.ITIMER_VIRTUAL, self._seconds, _AGAIN_S)

    def __exit__(self, *raised: object) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _widen_pipes(*ends: int) -> None:
    """Make room for a whole batch in the pipes, so that neither side waits because the other one is busy."""
    try:
        import fcntl  # not everywhere
    except ImportError:
        return
    for end in ends:
        with contextlib.suppress(OSError, AttributeError):
            # Linux only, and a system may allow less; with pipes as they are it is slower and nothing else.
            fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 1 << 20)


def _volunteer_for_oom() -> None:
    """Ask the system to end this process first when memory runs out, rather than the one that keeps traces."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("500")


if __name__ == "__main__":
    main()
