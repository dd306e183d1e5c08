"""Runs the pattern engine in a process of its own, for a process that must not end with it: run as `python -m`.

Whoever reads a suite has its patterns read by an engine written in C. A service reads suites of people it does not know, so while it runs
the engine is never loaded into it (`used_for_patterns`): one child reads all patterns, one after the other, and is replaced when it ends or
stands still. The pattern that ended it is refused. Frames are four bytes of length, then JSON, which also carries halves of characters.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from typing import Any, BinaryIO

from proctor.errors import CheckFault
from proctor.model.show import show
from proctor.patterns import script_engine
from proctor.patterns.faults import PatternError
from proctor.patterns.script_engine import Found
from proctor.processes.executor import end_process

ANSWER_S = 10.0
"""How long the engine may take to answer, its start included; a search itself takes far less."""
_COMMAND = (sys.executable, "-P", "-m", "proctor.service.decisions.pattern_process")


class PatternProcess:
    """The engine, seen from whoever uses it. Safe to share between threads."""

    def __init__(self, command: tuple[str, ...] = _COMMAND, *, answer_s: float = ANSWER_S) -> None:
        self._command = command
        self._answer_s = answer_s
        # Answers carry no number, so there is one question at a time.
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, so that the first pattern need not wait; where that fails the first pattern says so."""
        with self._lock, contextlib.suppress(OSError):
            self._get_process()

    def validate(self, source: str, flags: str) -> None:
        """Raise `PatternError` unless ECMAScript accepts the pattern."""
        try:
            self._ask({"source": source, "flags": flags})
        except (OSError, EOFError, TimeoutError) as error:
            raise PatternError(f"the pattern {show(source)} ended the engine that reads it: {_describe_error(error)}") from None

    def search(self, source: str, flags: str, text: str) -> Found | None:
        """Return the leftmost match. Raises `CheckFault` when it takes too much time or memory."""
        try:
            found = self._ask({"source": source, "flags": flags, "text": text})
        except (OSError, EOFError, TimeoutError) as error:
            raise CheckFault(
                "regex_limit", f"the pattern {show(source)} ended the engine that searches: {_describe_error(error)}"
            ) from None
        return None if found is None else Found(*found)

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end_process()

    def _ask(self, question: dict[str, Any]) -> Any:
        with self._lock:
            try:
                process = self._get_process()
                assert process.stdin is not None
                process.stdin.write(_make_frame(question))
                process.stdin.flush()
                answer = self._read_answer(process)
            except BaseException:
                # Whatever is still to come would be taken for the answer to another question.
                self._end_process()
                raise
        fault = answer.get("fault")
        if fault is not None:
            raise CheckFault(*fault)
        if "refused" in answer:
            message, offset, hint = answer["refused"]
            raise PatternError(message, offset=offset, hint=hint)
        return answer["found"]

    def _get_process(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            # Not above: the process itself imports this module too, and would load all that decides for nothing.
            from proctor.service.decisions.child_process import make_child_environment

            # One that has ended by itself still has its pipes open here.
            self._end_process()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=make_child_environment(),
                # Unbuffered: bytes in a buffer of Python would be invisible to the selector below.
                bufsize=0,
            )
        return self._process

    def _read_answer(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        assert process.stdout is not None
        held = bytearray()
        end = time.monotonic() + self._answer_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while len(held) < 4 or len(held) < 4 + int.from_bytes(held[:4], "big"):
                # One end for the whole answer: an engine that sends a byte now and then does not get more time by that.
                if not selector.select(max(0.0, end - time.monotonic())):
                    raise TimeoutError(f"no answer within {self._answer_s:g} s")
                data = os.read(process.stdout.fileno(), 1 << 20)
                if not data:
                    raise EOFError(_describe_exit(process))
                held += data
        return json.loads(held[4:])

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            end_process(process)


@contextlib.contextmanager
def used_for_patterns(engine: PatternProcess | None = None) -> Generator[PatternProcess]:
    """Have all patterns of this process read and searched elsewhere, as long as the block lasts."""
    engine = engine or PatternProcess()
    engine.start()
    before = script_engine.use_engine(engine)
    try:
        yield engine
    finally:
        script_engine.use_engine(before)
        engine.close()


def _describe_error(error: Exception) -> str:
    return str(error) or type(error).__name__


def _describe_exit(process: subprocess.Popen[bytes]) -> str:
    code = process.wait()
    with contextlib.suppress(ValueError):
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it ended with exit code {code}"


def _make_frame(value: object) -> bytes:
    data = json.dumps(value).encode()
    return len(data).to_bytes(4, "big") + data


# --- the child --------------------------------------------------------------------------------------------------------


def main() -> None:
    """Answer questions until the input ends."""
    # A Ctrl-C reaches the whole group. The service decides when this ends, by ending its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    source: BinaryIO = sys.stdin.buffer
    with contextlib.suppress(BrokenPipeError):
        while len(size := source.read(4)) == 4:
            answer = answer_question(json.loads(source.read(int.from_bytes(size, "big"))))
            sys.stdout.buffer.write(_make_frame(answer))
            sys.stdout.buffer.flush()


def answer_question(question: dict[str, Any]) -> dict[str, Any]:
    """Return what the engine says of one pattern."""
    try:
        if "text" not in question:
            script_engine.validate(question["source"], question["flags"])
            return {"found": None}
        return {"found": script_engine.search(question["source"], question["flags"], question["text"])}
    except PatternError as error:
        return {"refused": [error.message, error.offset, error.hint]}
    except CheckFault as fault:
        return {"fault": [fault.code, fault.message]}


if __name__ == "__main__":
    main()
