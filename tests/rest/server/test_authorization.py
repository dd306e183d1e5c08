"""Every route with every kind of key, for the own and a foreign tenant. The table must be complete."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.routing import iter_route_contexts

from proctor.service.access.callers import LOCAL
from tests.postgres import Cluster
from tests.rest.seeds import sow
from tests.rest.services import Service

TABLE: dict[str, Any] = yaml.load((Path(__file__).parents[1] / "cases" / "authorization.yaml").read_bytes(), Loader=yaml.CSafeLoader)
ROWS: list[dict[str, Any]] = TABLE["rows"]
KEYS = ("organization", "project", "agent", "solver", "run", "sandbox")
WRONG = "vk_" + "x" * 43


def route_of(row: dict[str, Any]) -> str:
    """`METHOD /template`, without the remark after it."""
    return " ".join(row["id"].split(" ")[:2])


class Prepared:
    """A service with one of everything, and its keys."""

    def __init__(self, url: str, home: Path, keys: dict[str, str] | None = None) -> None:
        """`keys` are those of a database that has one of everything already."""
        self.service = Service(url, home, metrics_organization=LOCAL.organization_id)
        self.service.__enter__()
        self.keys = keys or self.service.keys()
        if keys is None:
            self.service.run(sow)


@pytest.fixture(scope="module")
def copy(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Prepared]:
    """Return how to prepare a service in a folder: the database is filled once, and copied."""
    home = tmp_path_factory.mktemp("filled")
    shutil.copyfile(sqlite_template, home / "proctor.db")
    filled = Prepared(f"sqlite:///{home / 'proctor.db'}", home)
    filled.service.__exit__(None, None, None)

    def copy_to(folder: Path) -> Prepared:
        shutil.copytree(home, folder, dirs_exist_ok=True)
        return Prepared(f"sqlite:///{folder / 'proctor.db'}", folder, filled.keys)

    return copy_to


@pytest.fixture(scope="module")
def shared(copy: Callable[[Path], Prepared], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    prepared = copy(tmp_path_factory.mktemp("authorization"))
    yield prepared
    prepared.service.__exit__(None, None, None)


def expected(row: dict[str, Any], whose: str) -> dict[str, int]:
    found = {**TABLE["kinds"][row["like"]][whose], **row.get(whose, {})}
    # The token of a sandbox opens nothing but that sandbox.
    return {"sandbox": 200 if TABLE["kinds"][row["like"]].get("open") else 403, **found}


def ask(prepared: Prepared, row: dict[str, Any], key: str | None) -> Any:
    method, template = route_of(row).split(" ")
    more = {name: row[name] for name in ("content", "headers") if name in row}
    if "body" in row:
        more["json"] = row["body"]
    return prepared.service.ask(method, row.get("path", template), key=key, **more)


def check(prepared: Prepared, row: dict[str, Any]) -> None:
    is_open = TABLE["kinds"][row["like"]].get("open", False)
    wrong: list[str] = []

    def want(who: str, key: str | None, status: int) -> Any:
        answer = ask(prepared, row, key)
        if answer.status_code != status:
            wrong.append(f"{who}: expected {status}, got {answer.status_code}: {answer.text[:200]}")
        return answer

    if not is_open:
        want("no key", None, 401)
        want("a wrong key", WRONG, 401)
        for kind in KEYS:
            answer = want(f"foreign {kind}", prepared.keys[f"foreign_{kind}"], expected(row, "foreign")[kind])
            if answer.status_code < 300 and "_home" in answer.text:
                wrong.append(f"foreign {kind}: sees objects of home: {answer.text[:300]}")
    # Successful requests come last: they may delete the object.
    for kind in sorted(KEYS, key=lambda kind: expected(row, "own")[kind] < 300):
        want(kind, prepared.keys[kind], expected(row, "own")[kind])
    assert not wrong, "\n".join(wrong)


@pytest.mark.in_turn
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
@pytest.mark.timeout(60)
def test_the_route_answers_every_kind_of_key_as_in_the_table(
    row: dict[str, Any], shared: Prepared, copy: Callable[[Path], Prepared], tmp_path: Path
) -> None:
    if not (row["id"].startswith("DELETE ") or row.get("fresh")):
        check(shared, row)
        return
    own = copy(tmp_path)
    try:
        check(own, row)
    finally:
        own.service.__exit__(None, None, None)


def test_every_route_is_in_the_table_and_no_other(shared: Prepared) -> None:
    routes = {
        f"{method} {context.path}"
        for context in iter_route_contexts(shared.service.app.routes)
        for method in (context.methods or ())
        # Pages use a session instead of a key, and have their own table (tests/pages).
        if method != "HEAD" and not str(context.path).startswith(("/ui", "/static/")) and context.path != "/"
    }
    table = {route_of(row) for row in ROWS}
    assert not sorted(routes - table), "not in tests/rest/cases/authorization.yaml"
    assert not sorted(table - routes), "in tests/rest/cases/authorization.yaml, but there is no such route"


def test_a_forbidden_request_is_refused_before_its_body_is_read(shared: Prepared) -> None:
    requests = 0
    for context in iter_route_contexts(shared.service.app.routes):
        senders = ("organization", "project") if context.path in ("/v1/traces", "/v1/logs", "/public/traces") else ()
        if not senders and getattr(context.route, "body_field", None) is None:
            continue
        others = {"/v1/benchmark-runs": ("organization", "solver"), "/api/proposals": ("organization", "project")}
        allowed = others.get(str(context.path), senders or ("organization",))
        for method in {"POST", "PUT", "PATCH"} & set(context.methods or ()):
            for kind in ("organization", "project", "solver", "run", "sandbox"):
                headers = {"content-type": "application/json"}
                answer = shared.service.ask(method, str(context.path), key=shared.keys[kind], content=b'{"no json', headers=headers)
                assert answer.status_code == (400 if kind in allowed else 403), (method, context.path, kind, answer.text)
                requests += 1
    assert requests > 100


def test_the_ids_of_the_rows_are_unique() -> None:
    ids = [row["id"] for row in ROWS]
    assert len(ids) == len(set(ids))


@pytest.mark.live
@pytest.mark.on_request
def test_the_table_holds_on_postgresql_too(postgres: Cluster, postgres_template: str, tmp_path: Path) -> None:
    prepared = Prepared(postgres.new_database(postgres_template), tmp_path)
    try:
        # Permissions are checked above the database, which only looks up keys and owners: one row per noun and method suffices.
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for row in ROWS:
            if not row["id"].startswith("DELETE "):
                rows.setdefault((route_of(row).split("/{")[0], row["like"]), row)
        assert len(rows) > 80
        # Deletions come last, and the end of the sandbox of a key comes at the very end.
        for row in sorted(rows.values(), key=lambda row: (row["id"] == "POST /sandboxes/{sandbox_id}/teardown", bool(row.get("fresh")))):
            check(prepared, row)
    finally:
        prepared.service.__exit__(None, None, None)
