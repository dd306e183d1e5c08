"""What the tasks of a batch are done by: processes of this machine, or a Dask cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import msgspec

from proctor.errors import InputError
from proctor.processes.dask_executor import DaskExecutor, TlsFiles
from proctor.processes.executor import Executor
from proctor.processes.local_executor import LocalExecutor

ENGINES = ("local", "dask")


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine is told."""

    workers: int | None = None
    scheduler: str | None = None
    """The address of a Dask scheduler that is there already."""
    tls: TlsFiles | None = None
    client: object = None
    """A `dask.distributed.Client` that is connected already."""


@contextlib.contextmanager
def open_executor(engine: str, options: EngineOptions) -> Generator[Executor]:
    """Provide what the tasks of a batch are done by. Raises `InputError` where it cannot be had."""
    if engine not in ENGINES:
        raise InputError(f"unknown engine {engine!r}; expected {' or '.join(ENGINES)}, or a client of dask.distributed")
    if options.workers is not None and options.workers < 1:
        raise InputError(f"workers: expected at least 1, found {options.workers}")
    if engine == "local":
        if options.scheduler is not None or options.tls is not None or options.client is not None:
            raise InputError("a scheduler is for the engine dask (--engine dask)")
        yield LocalExecutor(options.workers)
    else:
        with DaskExecutor(scheduler=options.scheduler, tls=options.tls, client=options.client, workers=options.workers) as executor:
            yield executor
