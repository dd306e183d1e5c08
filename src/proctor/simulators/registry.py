"""The kinds of simulated systems by name: every file in `kinds/` is one."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from proctor.errors import SpecError
from proctor.model.show import nearest, show
from proctor.simulators.ports import Simulator


@functools.cache
def list_kinds() -> tuple[str, ...]:
    """Return the names of all kinds, sorted."""
    package = importlib.import_module("proctor.simulators.kinds")
    return tuple(sorted(info.name for info in pkgutil.iter_modules(package.__path__)))


def find_simulator(kind: str) -> Simulator:
    """Return the simulator of a kind, named in any case. Raises `SpecError` with the nearest names for an unknown one."""
    known = list_kinds()
    if kind.lower() not in known:
        raise SpecError(
            f"unknown kind of system {show(kind)}; there are {', '.join(known)}", field="kind", nearest=nearest(kind.lower(), known)
        )
    return importlib.import_module(f"proctor.simulators.kinds.{kind.lower()}").SIMULATOR
