"""The parent's side of a decision process."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from proctor.service.decisions.child_process import ChildProcess
from proctor.service.decisions.process import READY

ANSWERING = f"""
import sys
from proctor.service.decisions.process import make_frame
for frame in ({READY!r}, b"a", b"b"):
    sys.stdout.buffer.write(make_frame(frame))
    sys.stdout.buffer.flush()
    sys.stdin.buffer.read(1)
"""


async def test_frames_stay_in_the_pipe_for_a_moment() -> None:
    process = ChildProcess((sys.executable, "-P", "-c", ANSWERING), stall_s=20.0)
    await process.start()
    try:
        child: Any = process._process  # pyright: ignore[reportPrivateUsage]
        pipe = child._transport.get_pipe_transport(1)
        waiting = asyncio.create_task(process.wait_for_frames(0.05))
        await asyncio.sleep(0)
        assert not pipe.is_reading()
        await process.send(b"next")
        await waiting
        assert pipe.is_reading()
        assert [await process.receive() for _ in "ab"] == [b"a", b"b"]
    finally:
        await process.close()
