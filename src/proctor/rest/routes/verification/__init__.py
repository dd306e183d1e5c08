"""The verification API, in the shapes of Verial's clients: one module per noun.

`router` has all of them. It is put together when it is asked for, so that one noun can be imported without the others.
"""

from __future__ import annotations

import importlib

from fastapi import APIRouter

_NOUNS = (
    *("environments", "simulators", "datasets", "benchmarks", "tasks", "criteria"),
    *("playgrounds", "runs", "solvers", "public_runs", "legacy"),
)


def __getattr__(name: str) -> APIRouter:
    if name != "router":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    router = APIRouter()
    for noun in _NOUNS:
        router.include_router(importlib.import_module(f"{__name__}.{noun}").router)
    return router
