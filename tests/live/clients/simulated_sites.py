"""Sandboxes on loopback for clients that run as processes of their own."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from proctor.model.case import System
from proctor.sandboxes.server import LoopbackServer
from proctor.simulators.rows import MemoryStore
from proctor.simulators.sandbox import Sandbox, provision_rows
from tests.simulators.workplace import make_surroundings


def wait_for(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine, run in a new thread, since the thread of a browser already has a loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


class Site:
    """A sandbox on loopback."""

    def __init__(self, *systems: System) -> None:
        around = make_surroundings()
        self.systems = systems
        self.server = LoopbackServer()
        self.server.open()
        self.sandbox = Sandbox("s1", systems, MemoryStore(), around)
        wait_for(self.sandbox.provision(provision_rows(systems, around)))
        names = tuple(system.name for system in systems)
        mllp, sftp = ([one.name for one in systems if wants(one)] for wants in (lambda one: one.wants_mllp, lambda one: one.wants_sftp))
        self.place = self.server.add(self.sandbox, names, mllp=tuple(mllp), sftp=tuple(sftp))
        self.variables = self.place.find_variables(names)

    def state(self) -> Any:
        return wait_for(self.sandbox.read_state())


def run(*command: str | Path, **variables: str) -> str:
    """Run a client, and return what it prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **variables})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
