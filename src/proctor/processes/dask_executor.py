"""Runs tasks on a Dask cluster: one of this machine, an existing one, or the one of a given `Client`.

Dask gives the task of a dead worker to another one, a few times at most, and restarts workers; if the scheduler itself is gone, the caller
gets an error. Shared data of a job is registered as a plugin of the workers: it is sent once to each of them, also to those that join
later, and not with every task.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import itertools
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import msgspec

from proctor import __version__
from proctor.errors import InputError, MissingExtra
from proctor.processes.dask_work import do_named_task, read_versions
from proctor.processes.executor import Done, StopWork, Work

WORKERS_WITHIN_S = 60
"""Maximum seconds until the first worker of a cluster is available."""
CONNECTED_WITHIN_S = 30
WINDOW = 16
"""Submitted tasks per thread of a cluster: a scheduler with too many tasks slows down."""
_GONE = (OSError, TimeoutError, asyncio.CancelledError, concurrent.futures.CancelledError)
"""Errors of an unreachable scheduler."""
_LOGGERS = ("distributed", "distributed.client")
"""The second logger has its own level, set by Dask."""


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The TLS files of a scheduler and this machine."""

    ca: str
    certificate: str
    key: str


class DaskExecutor:
    """A Dask cluster, used as a context manager that closes what it opened."""

    def __init__(
        self, *, scheduler: str | None = None, tls: TlsFiles | None = None, client: Any = None, workers: int | None = None
    ) -> None:
        """Without `scheduler` and `client`, a cluster of this many processes is started on this machine."""
        self._distributed = import_distributed()
        self._scheduler, self._tls, self._workers = scheduler, tls, workers
        self._own_client = client
        self._client: Any = client
        self._stack = ExitStack()
        self._cancelled = threading.Event()

    def __enter__(self) -> DaskExecutor:
        if self._own_client is None:
            self._client = self._connect()
        else:
            expected = "expected an engine 'local', 'dask', or a client of dask.distributed"
            if not isinstance(self._own_client, self._distributed.Client):
                raise InputError(f"{expected}, found {type(self._own_client).__name__}")
            if self._own_client.asynchronous:
                raise InputError(f"{expected} that waits: Client(...) without asynchronous=True, also in a notebook")
            if self._own_client.status != "running":
                raise InputError(f"{expected} that is connected; this one is {self._own_client.status}")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _connect(self) -> Any:
        distributed = self._distributed
        # A client that is closed while it reconnects to a lost scheduler logs a traceback; this class reports the error.
        for logger in map(logging.getLogger, _LOGGERS):
            self._stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
        try:
            if self._scheduler is None:
                # Tasks hold the GIL most of the time: threads would wait for each other.
                cluster = distributed.LocalCluster(
                    n_workers=self._workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=logging.CRITICAL
                )
                self._stack.enter_context(cluster)
                return self._stack.enter_context(distributed.Client(cluster))
            security = None
            if self._tls is not None:
                files = self._tls
                security = distributed.Security(
                    tls_ca_file=files.ca, tls_client_cert=files.certificate, tls_client_key=files.key, require_encryption=True
                )
            return self._stack.enter_context(
                distributed.Client(self._scheduler, security=security, timeout=CONNECTED_WITHIN_S, set_as_default=False)
            )
        except (OSError, ValueError, TypeError, TimeoutError) as error:
            self._stack.close()
            raise InputError(f"no Dask scheduler could be reached at {self._scheduler or 'this machine'}: {error}") from error

    def map(self, work: Work, tasks: Sequence[bytes]) -> Iterator[Done]:
        """Yield the result of each task as it ends, in any order. Raises `StopWork`."""
        client = self._client
        # Named by its content: several works on one cluster do not overwrite each other's payload.
        name = f"proctor-{hashlib.sha256(work.setup.encode() + work.payload).hexdigest()[:24]}"
        try:
            self._require_workers(client)
            client.register_plugin(_make_plugin(self._distributed, name, work.payload), name=name)
            window = WINDOW * max(1, sum(client.nthreads().values()))
        except _GONE as error:
            raise self._gone_error() from error
        waiting = iter(enumerate(tasks))
        pending: dict[str, tuple[int, Any]] = {}

        def submit(count: int) -> list[Any]:
            # Not pure: Dask names pure tasks by their arguments, so two equal tasks would have one key in `pending`.
            some = list(itertools.islice(waiting, count))
            names, setups = [name] * len(some), [work.setup] * len(some)
            futures = client.map(do_named_task, names, setups, [task for _, task in some], pure=False, retries=0) if some else []
            pending.update({future.key: (number, future) for (number, _), future in zip(some, futures, strict=True)})
            return futures

        try:
            with client.as_current():
                # The program may have another client as the current one.
                completed = self._distributed.as_completed(submit(window))
            for future in completed:
                if self._cancelled.is_set():
                    return
                number, _ = pending.pop(future.key)
                try:
                    done = self._read_future(future, number)
                    completed.update(submit(1))
                except _GONE as error:
                    raise self._gone_error() from error
                yield done
        finally:
            # If the scheduler is gone, there is nothing to clean up.
            if client.status == "running":
                with suppress(*_GONE, RuntimeError, ValueError):
                    client.cancel([future for _, future in pending.values()])
                with suppress(*_GONE, RuntimeError, ValueError):
                    client.unregister_worker_plugin(name)

    def cancel(self) -> None:
        """Cancel running tasks."""
        self._cancelled.set()

    def _require_workers(self, client: Any) -> None:
        try:
            client.wait_for_workers(1, timeout=WORKERS_WITHIN_S)
        except TimeoutError as error:
            raise StopWork(f"no worker came to the Dask scheduler at {_name_scheduler(client)} within {WORKERS_WITHIN_S} s") from error
        try:
            versions = client.run(read_versions)
        except _GONE:
            raise
        except Exception as error:  # any error of a worker: proctor is missing or broken there
            raise StopWork(f"the workers of Dask cannot import proctor; install the same version there: {error}") from error
        for address, (version, _) in versions.items():
            if version != __version__:
                raise StopWork(f"the worker {address} has proctor {version}; this is {__version__}, which may decide otherwise")

    def _read_future(self, future: Any, number: int) -> Done:
        if future.status == "finished":
            reply: dict[str, Any] = future.result()
            if "stop" in reply:
                raise StopWork(reply["stop"])
            return Done(task=number, result=reply.get("result", b""), error=reply.get("error"))
        if future.status == "error":
            error = future.exception()
            if type(error).__name__ == "KilledWorker":
                return Done(task=number, error="every worker that took it ended, as the system does where memory runs out", deaths=1)
            return Done(task=number, error=f"{type(error).__name__}: {error}")
        # Lost or cancelled from outside.
        raise self._gone_error()

    def _gone_error(self) -> StopWork:
        place = self._scheduler or _name_scheduler(self._client)
        return StopWork(f"the Dask scheduler at {place} is gone, or was restarted; what is committed stays, --resume goes on")


def import_distributed() -> Any:
    """Return the package; raises `MissingExtra` if it is not installed."""
    import importlib

    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise MissingExtra("--engine dask", "dask") from error


def _name_scheduler(client: Any) -> str:
    return str(getattr(getattr(client, "scheduler", None), "address", None) or "an unknown address")


def _make_plugin(distributed: Any, name: str, payload: bytes) -> Any:
    """Return a Dask plugin that hands the payload to workers; its base class exists only if Dask is installed."""

    class Payload(distributed.WorkerPlugin):
        def setup(self, worker: Any) -> None:
            from proctor.processes.dask_work import PAYLOADS

            PAYLOADS[name] = payload

        def teardown(self, worker: Any) -> None:
            from proctor.processes.dask_work import PAYLOADS

            PAYLOADS.pop(name, None)

    return Payload()
