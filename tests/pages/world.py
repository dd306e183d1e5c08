"""A service in this process with a project of two runs, and visitors of every kind.

world.get("/ui/", "organization")       the page for a session of that key
world.get("/ui/")                       the page without a session
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import proctor
from proctor.model.case import Case, Suite
from proctor.model.run import RunEntry
from proctor.service.access.callers import LOCAL
from proctor.service.access.keys import open_session
from proctor.service.hub import Hub, stamp
from proctor.store.sql.compressed_json import pack
from proctor.store.sql.tables import annotation_rows, run_entries, run_events, runs
from tests.pages.trace_seeds import seed_traces
from tests.pages.world_cases import seed_cases
from tests.rest.services import Service

SUITE = """\
proctor: 1
name: shop
cases:
  - id: refund-twice
    name: Charged twice
    description: The customer was charged twice and wants one of the payments back.
    tags: {team: billing, urgent: true}
    input: I was charged twice for order 17
    expect:
      - tool_called: {name: lookup_order, arguments: {id: 17}}
      - tool_called: {name: refund, arguments: {id: 17, amount: 42.5}}
      - response_contains: refunded
  - id: opening-hours
    input: When are you open?
    expect:
      - response_contains: nine
  - id: greeting
    input: hello
    expect:
      - response_contains: hello
"""
GOOD = {
    "refund-twice": {
        "text": "The second payment of 42.50 was refunded.",
        "duration_ms": 2100,
        "usage": {"input_tokens": 320, "output_tokens": 45},
        "tool_calls": [
            {"name": "lookup_order", "arguments": {"id": 17}, "result": {"total": 42.5, "payments": 2}, "duration_ms": 120},
            {"name": "refund", "arguments": {"id": 17, "amount": 42.5}, "result": {"status": "done"}, "duration_ms": 480},
        ],
    },
    "opening-hours": {"text": "We are open from nine to five.", "tool_calls": [], "duration_ms": 800},
    "greeting": {"text": "hello there", "tool_calls": [], "duration_ms": 300},
}
BAD = {
    **GOOD,
    "refund-twice": {
        "text": "I am sorry, I cannot do that.",
        "duration_ms": 1900,
        "tool_calls": [
            {"name": "lookup_order", "arguments": {"id": 71}, "result": {"total": 9, "payments": 1}, "duration_ms": 110},
            {"name": "refund", "arguments": {"id": 71}, "error": "order 71 was paid once", "duration_ms": 40},
        ],
    },
    "opening-hours": {"text": "I do not know.", "tool_calls": [], "duration_ms": 700},
}


def read_suite(text: str = SUITE) -> Suite:
    from proctor.formats.suites import read_suite as read

    return read(text, name="shop")


def decide(suite: Suite, case: Case, observed: dict[str, Any], attempt: int, at: str) -> RunEntry:
    """One finished attempt, decided as a run decides it."""
    evidence = proctor.read_evidence({"case": case.id, "input": case.input, **observed})
    result = next(one for one in proctor.check(suite, evidence).cases if one.case.id == case.id)
    fields = {name: getattr(result, name) for name in ("outcome", "score", "verdict", "code", "reason")}
    fields["verdicts"] = tuple(verdict.with_words() for verdict in result.verdicts)
    return RunEntry(case=case.id, attempt=attempt, evidence=evidence, started_at=at, duration_ms=observed.get("duration_ms"), **fields)


def decide_all(observed: dict[str, dict[str, Any]], *, repeat: int = 1, at: str = "2026-11-15T09:00:00.000Z") -> list[RunEntry]:
    suite = read_suite()
    return [decide(suite, case, observed[case.id], attempt, at) for case in suite.cases for attempt in range(repeat)]


async def add_run(hub: Hub, id: str, entries: list[RunEntry], **more: Any) -> None:
    """A run of the project `proj_home`, as a worker would have left it."""
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.outcome] = counts.get(entry.outcome, 0) + 1
    attempts = more.pop("attempts", len(entries))
    repeat = more.pop("repeat", 1)
    at = more.pop("at", "2026-11-15T09:00:00.000Z")
    values = {
        "id": id,
        "organization_id": LOCAL.organization_id,
        "project_id": "proj_home",
        "suite_name": "shop",
        "dialect": "native",
        "document": SUITE,
        "target": "shop-agent",
        "settings": {"attempts": attempts, "repeat": repeat},
        "status": "completed",
        "outcome": next((word for word in ("fail", "error", "pass") if counts.get(word)), "skip"),
        "counts": counts,
        "note": "",
        "created_at": at,
        "updated_at": at,
        "started_at": at,
        "completed_at": at.replace(":00.000Z", ":42.000Z"),
        **more,
    }
    async with hub.database.writing() as connection:
        await connection.execute(runs.insert().values(values))
        for number, entry in enumerate(entries):
            row = {"id": f"att_{id[4:]}_{number}", "run_id": id, "case_id": entry.case, "attempt": entry.attempt, "outcome": entry.outcome}
            made = stamp(1_794_700_000 + number)
            await connection.execute(run_entries.insert().values(**row, body=pack(entry), created_at=made))
        for number, kind in enumerate(("queued", "running"), 1):
            event = {"run_id": id, "number": number, "kind": kind, "body": {"attempts": attempts}, "at": at}
            await connection.execute(run_events.insert().values(event))


async def seed(hub: Hub) -> None:
    await add_run(hub, "run_before", decide_all(GOOD, repeat=4), repeat=4)
    await add_run(hub, "run_after", decide_all(BAD, repeat=4), repeat=4, at="2026-11-16T09:00:00.000Z", note="new prompt")
    await seed_cases(hub)
    await seed_traces(hub)
    await add_label(hub)


async def add_label(hub: Hub) -> None:
    """The label `ann_note` of the whole trace `trc_shop`."""
    at = "2026-11-15T12:00:00.000Z"
    ours = {"organization_id": LOCAL.organization_id, "project_id": "proj_home", "agent_id": "agent_home_1"}
    about = {"subject": "trace", "subject_id": "trc_shop", "parent_id": "trc_shop", "claim": None}
    fields = {"label": "fail", "note": "too curt", "author": "key_seed", "created_at": at, "updated_at": at}
    async with hub.database.writing() as connection:
        await connection.execute(annotation_rows.insert().values(id="ann_note", **ours, **about, **fields))


class WorldTemplate(NamedTuple):
    """The initial state of a world: the folder of its database, its keys and its sessions."""

    folder: Path
    keys: dict[str, str]
    sessions: dict[str, str]


def keep_world(template: Path, folder: Path, *more: Callable[[Hub], Awaitable[None]]) -> WorldTemplate:
    """Make a template that tests copy, with more data; filling a new world takes ten times as long."""
    shutil.copyfile(template, folder / "proctor.db")
    (folder / "proctor.db").chmod(0o600)
    with World(f"sqlite:///{folder / 'proctor.db'}", folder) as opened:
        for add in more:
            opened.service.run(add)
        return WorldTemplate(folder, opened.keys, opened.sessions)


def copy_world(template: WorldTemplate, home: Path) -> World:
    """Return a copy of the template for one test."""
    shutil.copytree(template.folder, home, dirs_exist_ok=True)
    return World(f"sqlite:///{home / 'proctor.db'}", home, template=template)


class World:
    """The service, its keys, and a session for each of them that may have one."""

    def __init__(self, url: str, home: Path, *, template: WorldTemplate | None = None, **settings: Any) -> None:
        self.service = Service(url, home, **settings)
        self.keys = dict(template.keys) if template is not None else {}
        self.sessions = dict(template.sessions) if template is not None else {}

    def __enter__(self) -> World:
        self.service.__enter__()
        if self.keys:
            return self
        self.keys = self.service.keys()
        self.service.run(seed)
        for name in ("organization", "project", "agent", "foreign_organization", "foreign_project"):
            self.sessions[name] = self.service.run(lambda hub, key=self.keys[name]: open_session(hub, key))[1]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.service.__exit__(kind, error, trace)

    def ask(self, method: str, path: str, who: str | None = None, **more: Any) -> Any:
        headers = dict(more.pop("headers", {}))
        if who is not None:
            headers["cookie"] = f"proctor_session={self.sessions[who]}"
        self.service.client.cookies.clear()
        return self.service.client.request(method, path, headers=headers, follow_redirects=False, **more)

    def get(self, path: str, who: str | None = None, **more: Any) -> Any:
        return self.ask("GET", path, who, **more)

    def post(self, path: str, who: str | None = None, **fields: str) -> Any:
        return self.ask("POST", path, who, data=fields)

    def find_proof(self, path: str, who: str) -> str:
        """The proof in a form of a page."""
        found = re.search(r'name="proof" value="([0-9a-f]+)"', self.get(path, who).text)
        assert found is not None
        return found[1]
