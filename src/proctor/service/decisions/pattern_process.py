"""Runs the pattern engine, which is written in C, in a separate process: `python -m proctor.service.decisions.pattern_process`.

A service reads suites of unknown users, so that a crash of the engine must not end it. While `used_for_patterns` is active, one child
evaluates all patterns and is replaced when it ends or hangs; the pattern that caused it is rejected. Frames are four bytes of length, then
JSON, which supports lone surrogates.
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
"""Seconds for an answer, including the start of the process."""
_COMMAND = (sys.executable, "-P", "-m", "proctor.service.decisions.pattern_process")


class PatternProcess:
    """The parent's side of the engine, safe for threads."""

    def __init__(self, command: tuple[str, ...] = _COMMAND, *, answer_s: float = ANSWER_S) -> None:
        self._command = command
        self._answer_s = answer_s
        # Answers have no id, so that there is one request at a time.
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, so that the first pattern need not wait; a failure is reported by the first pattern."""
        with self._lock, contextlib.suppress(OSError):
            self._get_process()

    def validate(self, source: str, flags: str) -> None:
        """Raise `PatternError` unless the pattern is valid ECMAScript."""
        try:
            self._request({"source": source, "flags": flags})
        except (OSError, EOFError, TimeoutError) as error:
            raise PatternError(f"the pattern {show(source)} crashed the pattern engine: {_describe_error(error)}") from None

    def search(self, source: str, flags: str, text: str) -> Found | None:
        """Return the leftmost match. Raises `CheckFault` if it takes too much time or memory."""
        try:
            answer = self._request({"source": source, "flags": flags, "text": text})
        except (OSError, EOFError, TimeoutError) as error:
            raise CheckFault("regex_limit", f"the pattern {show(source)} crashed the pattern engine: {_describe_error(error)}") from None
        return None if answer is None else Found(*answer)

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end_process()

    def _request(self, question: dict[str, Any]) -> Any:
        with self._lock:
            try:
                process = self._get_process()
                assert process.stdin is not None
                process.stdin.write(_make_frame(question))
                process.stdin.flush()
                answer = self._read_answer(process)
            except BaseException:
                # A late answer would be mistaken for that of another request.
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
            # Imported here: the child imports this module too and does not need it.
            from proctor.service.decisions.child_process import make_child_environment

            # An ended process still has open pipes.
            self._end_process()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=make_child_environment(),
                # Unbuffered, since the selector below cannot see Python's buffers.
                bufsize=0,
            )
        return self._process

    def _read_answer(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        assert process.stdout is not None
        buffer = bytearray()
        end = time.monotonic() + self._answer_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while len(buffer) < 4 or len(buffer) < 4 + int.from_bytes(buffer[:4], "big"):
                # One deadline for the whole answer.
                if not selector.select(max(0.0, end - time.monotonic())):
                    raise TimeoutError(f"no answer within {self._answer_s:g} s")
                data = os.read(process.stdout.fileno(), 1 << 20)
                if not data:
                    raise EOFError(_describe_exit(process))
                buffer += data
        return json.loads(buffer[4:])

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            end_process(process)


@contextlib.contextmanager
def used_for_patterns(engine: PatternProcess | None = None) -> Generator[PatternProcess]:
    """Evaluate all patterns of this process in a child during the block."""
    engine = engine or PatternProcess()
    engine.start()
    previous_engine = script_engine.use_engine(engine)
    try:
        yield engine
    finally:
        script_engine.use_engine(previous_engine)
        engine.close()


def _describe_error(error: Exception) -> str:
    return str(error) or type(error).__name__


def _describe_exit(process: subprocess.Popen[bytes]) -> str:
    code = process.wait()
    with contextlib.suppress(ValueError):
        return f"ended by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _make_frame(value: object) -> bytes:
    data = json.dumps(value).encode()
    return len(data).to_bytes(4, "big") + data


# --- the child --------------------------------------------------------------------------------------------------------


def main() -> None:
    """Answer requests until the input ends."""
    # Ctrl-C reaches the whole group. The service ends this process by closing its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    source: BinaryIO = sys.stdin.buffer
    with contextlib.suppress(BrokenPipeError):
        while len(size := source.read(4)) == 4:
            answer = answer_question(json.loads(source.read(int.from_bytes(size, "big"))))
            sys.stdout.buffer.write(_make_frame(answer))
            sys.stdout.buffer.flush()


def answer_question(question: dict[str, Any]) -> dict[str, Any]:
    """Return the engine's answer to one request."""
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
