"""A real `proctor serve` in a separate process, for tests that kill it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen


class Serving:
    """One server process."""

    def __init__(self, home: Path, *, database: str | None = None, flags: tuple[str, ...] = (), before: tuple[str, ...] = ()) -> None:
        self.log = home / f"serve-{time.monotonic_ns()}.log"
        words = ["serve", "--port", "0", "--home", str(home), "--requests-per-minute", "0", *flags]
        if database is not None:
            words += ["--database", database]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PROCTOR_")}
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-m", "proctor", *words], stdout=out, stderr=subprocess.STDOUT, env=environment
            )
        self.url = self._wait()

    def _wait(self) -> str:
        end = time.monotonic() + 180
        while True:
            text = self.log.read_text(errors="replace")
            line = next((line for line in text.splitlines() if "serves on http://" in line), None)
            if line is not None:
                return line.partition("serves on ")[2].strip()
            assert self.process.poll() is None and time.monotonic() < end, text
            time.sleep(0.02)

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"content-type": "application/json", **(headers or {})}, method=method)
        try:
            with urlopen(request, timeout=60) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text and answer.headers["content-type"] == "application/json" else None
        except HTTPError as error:
            return error.code, error.read()
        except OSError as error:
            # Whether it was alive, and its last words: from the outside a crash and a cut connection look alike.
            error.add_note(f"exit code {self.process.poll()}; {self.log.read_text(errors='replace')[-2000:]}")
            raise

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def stop(self) -> int:
        """End it as an administrator does; its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(30)


@contextlib.contextmanager
def serving(home: Path, *, database: str | None = None, flags: tuple[str, ...] = (), before: tuple[str, ...] = ()) -> Iterator[Serving]:
    """A server that is always stopped at the end; `before` is prepended to its command."""
    server = Serving(home, database=database, flags=flags, before=before)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()
