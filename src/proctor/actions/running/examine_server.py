"""Examines an MCP server as a run: stored, compared and reported like any other (`actions/doctor/examination.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from proctor.actions.doctor.examination import ExaminedServer, make_options, make_suite, read_server
from proctor.actions.doctor.server_names import find_server
from proctor.actions.doctor.snapshots import EXAMINATION, TAG, read_examination, read_snapshot
from proctor.actions.running.run import DEFAULT_OPTIONS, LiveRun, RunOptions, drive
from proctor.actions.workspace.run_history import find_home
from proctor.doctor.examine import Options, examine
from proctor.doctor.model import Examination
from proctor.model.evidence import Json
from proctor.processes.threads import wait_for_end
from proctor.runner.limits import RunSettings
from proctor.targets.mcp.settings import ServerSettings

_AT_ONCE = 500
"""Cases that are decided at once: nothing is sent for one, and stored together they need few writes."""


async def drive_examination(
    settings: ServerSettings, options: Options, run_options: RunOptions = DEFAULT_OPTIONS, *, home: str | None = None
) -> tuple[LiveRun, Examination | None]:
    """Examine a server and store the run; an interrupted one has no examination. Raises `TargetError` if it cannot be started."""
    target = ExaminedServer(settings, options)
    tags = run_options.tags if run_options.resume is not None or TAG in run_options.tags else (*run_options.tags, TAG)
    run_options = msgspec.structs.replace(run_options, tags=tags, settings=RunSettings(concurrency=_AT_ONCE, retries=0))
    live = await drive(make_suite(settings, options), run_options, target=target, home=home)
    # A resumed run with no case left was not examined again.
    return live, target.examination or read_examination(read_snapshot(live.folder, EXAMINATION))


def examine_server(
    server: str | Mapping[str, Json] | ServerSettings,
    *,
    calls: str | Mapping[str, Json] | None = None,
    fuzz: int = 0,
    profiles: Sequence[str] = (),
    areas: Sequence[str] = (),
    expected: str | Sequence[str] = (),
    lock: str | None = None,
    timeout_s: float = 10.0,
    home: str | None = None,
    store: bool = True,
    name: str = "",
    tags: Sequence[str] = (),
    note: str = "",
) -> Examination:
    """Examine an MCP server: a command, a URL, a server of `proctor.yaml`, an `mcp.json`, or settings. Only declared `calls` are made.

    With `store` it is a run: `proctor compare`, `report` and `view` know it by `run_id` of the result, or by `name` and `tags`.
    """
    if isinstance(server, ServerSettings):
        settings = server
    else:
        settings = find_server(server, find_home(home)) if isinstance(server, str) else read_server(server)
    options = make_options(calls=calls, fuzz=fuzz, profiles=profiles, areas=areas, expected=expected, lock=lock, timeout_s=timeout_s)
    run_options = RunOptions(name=name, tags=tuple(tags), note=note)

    async def examine_once() -> Examination:
        if not store:
            return await examine(settings, options)
        live, examination = await drive_examination(settings, options, run_options, home=home)
        if examination is None:
            raise asyncio.CancelledError
        return msgspec.structs.replace(examination, run_id=live.result.run_id)

    return wait_for_end(examine_once, called="examine_server", instead="proctor.doctor.examine.examine")
