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
from collections.abc import Callable, Generator
from types import FrameType
from typing import BinaryIO

import msgspec

from proctor.service.decisions.messages import Answer, Job
from proctor.service.decisions.record_verdicts import CaseDecider
from proctor.service.decisions.trace_verdicts import Batch, Decider, Limit, OutOfTime

READY = b"ready"
"""The first frame that it sends."""
_AGAIN_S = 1.0
_WORN_OUT_BYTES = 400_000_000
"""From how much memory on a process that answered a request is replaced: what it needed once it seldom gives back."""


def framed(data: bytes) -> bytes:
    """A frame."""
    return len(data).to_bytes(4, "big") + data


def main() -> None:
    """Decide what comes in, until nothing does any more."""
    # Signals are for whoever started this, who ends it by ending its input; standard output is for frames only.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    _offer_to_be_ended_first()
    _stand_back([int(word) for word in sys.argv[1:3] if word.isdecimal()])
    _widen(0, out)
    limit = _alarm()
    decider, cases = Decider(limit=limit), CaseDecider(limit=limit)
    encode = msgspec.msgpack.Encoder().encode
    read = msgspec.msgpack.Decoder(Batch | Job).decode
    with contextlib.suppress(BrokenPipeError):
        _send(out, READY)
        while (frame := _frame(sys.stdin.buffer)) is not None:
            asked = read(frame)
            if isinstance(asked, Batch):
                for decision in decider.decide(asked):
                    _send(out, encode(decision))
            elif not _do_job(cases, asked, lambda answer: _send(out, encode(answer))):
                return


def _do_job(cases: CaseDecider, job: Job, tell: Callable[[Answer], None]) -> bool:
    """Answer a job; whether there may be another one."""
    left = len(job.works)
    for answer in cases.do(job):
        left -= 1
        last = left == 0 and (cases.exhausted or _most_memory() > _WORN_OUT_BYTES)
        tell(msgspec.structs.replace(answer, last=True) if last else answer)
        if last:
            return False
    return True


def _most_memory() -> int:
    """The most bytes of memory that this process ever used; 0 where nobody knows."""
    try:
        import resource  # not everywhere
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _stand_back(bounds: list[int]) -> None:
    """Bound the memory of this process, and let those that answer requests have the processor first."""
    try:
        import resource  # not everywhere
    except ImportError:
        return
    if bounds:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (bounds[0], bounds[0]))
    if len(bounds) > 1:
        with contextlib.suppress(OSError):
            os.nice(bounds[1])


def _frame(source: BinaryIO) -> bytes | None:
    size = source.read(4)
    if len(size) < 4:
        return None
    length = int.from_bytes(size, "big")
    data = source.read(length)
    return data if len(data) == length else None


def _send(out: int, data: bytes) -> None:
    left = memoryview(framed(data))
    while left:
        left = left[os.write(out, left) :]


def _alarm() -> Limit:
    """A limit in seconds of computing, kept by a timer of the system; none where there is no such timer."""
    if not hasattr(signal, "setitimer"):
        return contextlib.nullcontext

    def ring(number: int, frame: FrameType | None) -> None:
        raise OutOfTime

    signal.signal(signal.SIGVTALRM, ring)

    @contextlib.contextmanager
    def limit(seconds: float) -> Generator[None]:
        # Again and again: somebody may have held it up.
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds, _AGAIN_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    return limit


def _widen(*ends: int) -> None:
    """Room for a whole batch in the pipes: nobody stands still because the other one is busy."""
    try:
        import fcntl  # not everywhere
    except ImportError:
        return
    for end in ends:
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 1 << 20)


def _offer_to_be_ended_first() -> None:
    """When the memory of the machine is full, better this process than the one that keeps traces."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("500")


if __name__ == "__main__":
    main()
