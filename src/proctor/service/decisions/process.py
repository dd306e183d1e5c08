"""The decision process: `python -m proctor.service.decisions.process [MEMORY [NICE]]`.

A crash ends nothing else, and it can be interrupted within a case. Frames on standard input and output are four bytes of length, then
MessagePack. Each trace or record is answered before the next is started, so that the parent knows which one ended the process. It ends with
its input. `MEMORY` is the limit of its data in bytes, `NICE` its niceness.
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
"""The first frame."""
_AGAIN_S = 1.0
_WORN_OUT_BYTES = 400_000_000
"""Peak memory above which a process is replaced after a request, because memory is seldom returned."""


def make_frame(data: bytes) -> bytes:
    """Return the data as a frame."""
    return len(data).to_bytes(4, "big") + data


def main() -> None:
    """Decide requests until the input ends."""
    # The parent ends this process by closing its input; standard output is for frames only.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # When memory runs out, the system ends this process first, not the one that stores traces.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("500")
    _limit_process([int(word) for word in sys.argv[1:3] if word.isdecimal()])
    _widen_pipes(0, out)
    limit = _make_time_limit()
    decider, cases = TraceDecider(limit=limit), CaseDecider(limit=limit)
    encode = msgspec.msgpack.Encoder().encode
    read = make_msgpack_decoder(Batch | Job).decode
    with contextlib.suppress(BrokenPipeError):
        _send_frame(out, READY)
        while (frame := _read_frame(sys.stdin.buffer)) is not None:
            request = read(frame)
            if isinstance(request, Batch):
                for decision in decider.decide(request):
                    _send_frame(out, encode(decision))
            elif not _do_job(cases, request, lambda answer: _send_frame(out, encode(answer))):
                return


def _do_job(cases: CaseDecider, job: Job, send: Callable[[Answer], None]) -> bool:
    """Answer a job and return whether the process can take another one."""
    works_left = len(job.works)
    for answer in cases.answer_job(job):
        works_left -= 1
        last = works_left == 0 and (cases.exhausted or _measure_peak_bytes() > _WORN_OUT_BYTES)
        send(msgspec.structs.replace(answer, last=True) if last else answer)
        if last:
            return False
    return True


def _measure_peak_bytes() -> int:
    """Return the peak memory of this process; 0 if unknown."""
    # Linux counts the memory of the parent at the start as the child's in `ru_maxrss`, so a large server would wear out every process.
    with contextlib.suppress(OSError), open("/proc/self/status", "rb") as status:
        return next((int(line.split()[1]) * 1024 for line in status if line.startswith(b"VmHWM:")), 0)
    try:
        import resource  # not everywhere
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _limit_process(bounds: list[int]) -> None:
    try:
        import resource  # not everywhere
    except ImportError:
        return
    if bounds:
        with contextlib.suppress(OSError, ValueError):
            # Data, not address space, of which threads and libraries map far more than they use.
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
    # Truncated: the parent has gone.
    return data if len(data) == length else None


def _send_frame(out: int, data: bytes) -> None:
    unsent = memoryview(make_frame(data))
    while unsent:
        unsent = unsent[os.write(out, unsent) :]


def _make_time_limit() -> Limit:
    """Return a limit in CPU seconds by a system timer; no limit if there is none."""
    if not hasattr(signal, "setitimer"):
        return contextlib.nullcontext

    def ring(number: int, frame: FrameType | None) -> None:
        raise OutOfTime

    # CPU time of this process: a record is not charged for other processes.
    signal.signal(signal.SIGVTALRM, ring)

    return _TimeLimit


class _TimeLimit:
    """Raises `OutOfTime` after some CPU seconds."""

    # Not a generator, which would take five times as long, several times per trace.
    __slots__ = ("_seconds",)

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        # Repeated, since the exception may be swallowed.
        signal.setitimer(signal.ITIMER_VIRTUAL, self._seconds, _AGAIN_S)

    def __exit__(self, *raised: object) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _widen_pipes(*ends: int) -> None:
    """Enlarge the pipes for a whole batch, so that neither side waits for the other."""
    try:
        import fcntl  # not everywhere
    except ImportError:
        return
    for end in ends:
        with contextlib.suppress(OSError, AttributeError):
            # Linux only, and a system may allow less; smaller pipes are only slower.
            fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 1 << 20)


if __name__ == "__main__":
    main()
