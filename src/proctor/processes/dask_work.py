"""The functions that Dask workers run: named work, prepared once per thread, one task after another.

Nothing here imports Dask: a function is sent by its name, so it must be importable on the workers, which have proctor installed anyway.
"""

from __future__ import annotations

import platform
import threading
from typing import Any

from proctor import __version__
from proctor.processes.executor import DoTask, StopWork, describe_error, load_setup

PAYLOADS: dict[str, bytes] = {}
"""The payloads of current jobs by name; a plugin fills this in every worker, including those that join later."""
_local = threading.local()


def read_versions() -> tuple[str, str]:
    """Return the versions of proctor and of Python in a worker."""
    return __version__, platform.python_version()


def do_named_task(name: str, setup: str, task: bytes) -> dict[str, Any]:
    """Run one task; return its result or the error."""
    try:
        # One per thread: the prepared function has state.
        known: tuple[str, DoTask] | None = getattr(_local, "prepared", None)
        if known is None or known[0] != name:
            known = _local.prepared = (name, load_setup(setup)(PAYLOADS[name]))
        do_task = known[1]
    except Exception as error:
        return {"stop": describe_error(error)}
    try:
        return {"result": do_task(task)}
    except StopWork as error:
        return {"stop": str(error)}
    except Exception as error:
        return {"error": describe_error(error)}
