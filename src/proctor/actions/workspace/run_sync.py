"""Wait in ordinary code for what runs in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from proctor.errors import InputError
from proctor.processes.threads import is_loop_running

Result = TypeVar("Result")


def wait_for_end(work: Callable[[], Coroutine[Any, Any, Result]], *, called: str, instead: str) -> Result:
    """Run `work` to its end in a loop of its own. Raises `InputError` inside of a running loop, which it would hold up.

    `called` is what the user wrote, `instead` what to write in a notebook and in other code that runs in a loop.
    """
    if not is_loop_running():
        return asyncio.run(work())
    raise InputError(
        f"{called}(...) cannot wait where an event loop is running, as in a notebook or an async function: "
        f"write `await {instead}(...)`, with the same arguments"
    )
