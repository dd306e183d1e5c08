"""A service in this process for tests: the real application on a fresh database, over HTTP.

    def test_something(service: Service) -> None:
        keys = service.keys()                       # one key of every kind, of two organizations
        answer = service.get("/api/projects", key=keys["organization"])

Without `key` a request is anonymous; before the first key is made that is the local user. Workers do not run unless a test wants them
(`Service(..., with_workers=True)`). `run` does something with the hub in the service's own event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.testclient import TestClient

from proctor.rest.app import make_app
from proctor.rest.settings import ServeSettings
from proctor.service.access.callers import LOCAL, Caller
from proctor.service.access.keys import KeySpec, issue_key
from proctor.service.hub import Hub
from proctor.service.settings import ServiceSettings
from proctor.store.sql.tables import agents, audit, keys, organizations, projects, records

T = TypeVar("T")
ADDRESS = "http://127.0.0.1:8700"
FOREIGN = Caller(organization_id="org_foreign")


class Clock:
    """A clock that a test may set."""

    def __init__(self, at: float) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


class Service:
    """The application and a client of it."""

    def __init__(self, url: str, home: Path, *, with_workers: bool = False, host: str = "127.0.0.1", **settings: Any) -> None:
        self.settings = ServeSettings(service=ServiceSettings(home=home, **settings), database=url, host=host)
        self.app = make_app(self.settings, with_workers=with_workers)
        self.client = TestClient(self.app, base_url=ADDRESS, raise_server_exceptions=False, client=("127.0.0.1", 50000))

    def __enter__(self) -> Service:
        self.client.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.client.__exit__(kind, error, trace)

    @property
    def hub(self) -> Hub:
        return self.app.state.hub

    def run(self, use: Callable[[Hub], Awaitable[T]]) -> T:
        """Do something with the hub."""
        assert self.client.portal is not None

        async def with_hub() -> T:
            return await use(self.hub)

        return self.client.portal.call(with_hub)

    def ask(self, method: str, path: str, *, key: str | None = None, **more: Any) -> Any:
        headers = dict(more.pop("headers", {}))
        if key is not None:
            headers["x-api-key" if key.startswith("proctor_proj_") else "authorization"] = (
                key if key.startswith("proctor_proj_") else f"Bearer {key}"
            )
        return self.client.request(method, path, headers=headers, **more)

    def get(self, path: str, **more: Any) -> Any:
        return self.ask("GET", path, **more)

    def post(self, path: str, **more: Any) -> Any:
        return self.ask("POST", path, **more)

    def patch(self, path: str, **more: Any) -> Any:
        return self.ask("PATCH", path, **more)

    def put(self, path: str, **more: Any) -> Any:
        return self.ask("PUT", path, **more)

    def delete(self, path: str, **more: Any) -> Any:
        return self.ask("DELETE", path, **more)

    def keys(self) -> dict[str, str]:
        """Keys of every kind, in two organizations with a project, two agents, a solver, a benchmark run and a sandbox each.

        `organization`, `project`, `agent` (a project key restricted to the first agent), `solver`, `run`, `sandbox`, and the same with
        `foreign_`. Ids of what they are for: `proj_home`, `agent_home_1`, `agent_home_2`, `slv_home`, `br_home`, `sb_home`, and
        `..._foreign...`.
        """
        return self.run(make_keys)


_MADE: dict[str, Any] = {}
"""The keys that `make_keys` has made first in this process, and all rows that came with them."""
_FILLED = (organizations, projects, agents, records, keys, audit)


async def make_keys(hub: Hub) -> dict[str, str]:
    """See `Service.keys`."""
    # More than a thousand tests begin with this. Twelve keys in twelve transactions took more than all the rest of a short test, so
    # they are made once and their rows are inserted again; only the first one, which locks out the local user, is made each time.
    async with hub.database.writing() as connection:
        await _fill_place(connection, hub.now(), LOCAL, "home")
        first = (await issue_key(connection, hub, LOCAL, _list_keys("home").pop("organization")))[1]
        if _MADE:
            await _copy_rows(connection, hub.now())
        else:
            before = await _read_rows(connection)
            await _fill_place(connection, hub.now(), FOREIGN, "foreign")
            made = await _issue_keys(connection, hub)
            after = await _read_rows(connection)
            _MADE.update(keys=made, rows={name: [row for id, row in after[name].items() if id not in before[name]] for name in after})
    return {"organization": first, **_MADE["keys"]}


async def _issue_keys(connection: AsyncConnection, hub: Hub) -> dict[str, str]:
    made: dict[str, str] = {}
    for mark, caller, place in (("", LOCAL, "home"), ("foreign_", FOREIGN, "foreign")):
        for name, spec in _list_keys(place).items():
            if f"{mark}{name}" != "organization":
                made[f"{mark}{name}"] = (await issue_key(connection, hub, caller, spec))[1]
    return made


async def _read_rows(connection: AsyncConnection) -> dict[str, dict[str, dict[str, Any]]]:
    found = {}
    for table in _FILLED:
        rows = (await connection.execute(table.select())).mappings().all()
        found[table.name] = {row["id"]: dict(row) for row in rows}
    return found


async def _copy_rows(connection: AsyncConnection, now: str) -> None:
    for table in _FILLED:
        times = {name: now for name in ("created_at", "updated_at", "at") if name in table.c}
        if rows := _MADE["rows"][table.name]:
            await connection.execute(table.insert(), [{**row, **times} for row in rows])


def _list_keys(place: str) -> dict[str, KeySpec]:
    project = f"proj_{place}"
    return {
        "organization": KeySpec(kind="organization", name="o"),
        "project": KeySpec(kind="project", name="p", project_id=project),
        "agent": KeySpec(kind="project", name="a", project_id=project, agent_ids=[f"agent_{place}_1"]),
        "solver": KeySpec(kind="solver", name="s", solver_id=f"slv_{place}"),
        "run": KeySpec(kind="run", name="r", benchmark_run_id=f"br_{place}"),
        "sandbox": KeySpec(kind="sandbox", name="b", sandbox_id=f"sb_{place}"),
    }


async def fill_place(hub: Hub, caller: Caller, place: str) -> None:
    """A project with two agents, a solver, a benchmark run and a sandbox; ids end in the place."""
    async with hub.database.writing() as connection:
        await _fill_place(connection, hub.now(), caller, place)


async def _fill_place(connection: AsyncConnection, now: str, caller: Caller, place: str) -> None:
    at = {"created_at": now, "updated_at": now}
    ours = {"organization_id": caller.organization_id, **at}
    if caller.organization_id != LOCAL.organization_id:
        await connection.execute(organizations.insert().values(id=caller.organization_id, name=place, **at))
    await connection.execute(projects.insert().values(id=f"proj_{place}", name=place, **ours))
    named = [{"id": f"agent_{place}_{number}", "name": f"{place} {number}"} for number in (1, 2)]
    await connection.execute(agents.insert(), [{**one, "project_id": f"proj_{place}", "kind": "http", **ours} for one in named])
    solver = {"id": f"slv_{place}", "kind": "solver", "slug": f"solver-{place}", "parent_id": None, "body": _SOLVER}
    run = {"id": f"br_{place}", "kind": "benchmark_run", "slug": None, "parent_id": f"bench_{place}", "body": _RUN}
    simulated = {"simulator_id": f"sim_{place}", "type": "FHIR", "status": "active"}
    sandbox = {"id": f"sb_{place}", "kind": "sandbox", "slug": None, "parent_id": None, "body": simulated}
    await connection.execute(records.insert(), [{**record, **ours} for record in (solver, run, sandbox)])


_SOLVER = {"real_name": None, "agent_description": None, "agent_version": None, "contact_email": None}
_RUN = {
    "status": "active", "phase": "created", "scored": False, "verdict": None, "score": None, "outcome": None, "agent": None,
    "published": False, "solver_id": None, "benchmark": {"slug": "b", "version": 1, "name": "b"}, "started_at": None, "completed_at": None,
}  # fmt: skip
"""As the service keeps them."""
