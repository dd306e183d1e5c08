"""A process that runs tasks for another one: run as `python -m`, started by `executor.py`."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from typing import Any

from proctor.model.typed import decode_msgpack
from proctor.processes.executor import StopWork, Work, describe_error, load_setup, read_frame, write_frame


def main() -> None:
    """Run tasks until the input ends."""
    # Ctrl-C reaches the whole group; the parent ends this process by closing its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.fdopen(os.dup(1), "wb")
    # Output of a library must not be taken for a reply.
    os.dup2(2, 1)
    # Read in a thread: the end of the input must also be noticed during a task.
    frames: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_frames, args=(frames,), daemon=True).start()
    work = decode_msgpack(frames.get(), Work)
    try:
        do_task = load_setup(work.setup)(work.payload)
    except Exception as error:
        write_frame(replies, {"stop": describe_error(error)})
        return
    while True:
        task = decode_msgpack(frames.get(), bytes)
        reply: dict[str, Any]
        try:
            reply = {"result": do_task(task)}
        except StopWork as error:
            reply = {"stop": str(error)}
        except Exception as error:
            reply = {"error": describe_error(error)}
        write_frame(replies, reply)


def _read_frames(frames: queue.SimpleQueue[bytes]) -> None:
    try:
        while True:
            frames.put(read_frame(sys.stdin.buffer))
    except EOFError:
        # The parent is done or gone: the current task is not needed.
        # `sys.exit` would only end this thread.
        os._exit(0)


if __name__ == "__main__":
    main()
