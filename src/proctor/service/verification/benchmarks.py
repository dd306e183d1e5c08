"""Benchmarks: tasks under one name, published in versions that never change.

A version (`slug@3`) is a frozen copy of the benchmark, its tasks, their entities and criteria. A published benchmark that is Public can
be run by the solvers of every organization; its slug belongs to whoever made it public first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.model.show import show
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification import resources
from proctor.service.verification.environments import USED_BY
from proctor.service.verification.fields import Field, number, one_of, read_fields, text, whole
from proctor.service.verification.resources import Parent, Resource, authorize, required, stamps
from proctor.service.verification.soundness import criterion_document, entities_of, entity_document
from proctor.service.verification.tasks import TASK
from proctor.store.bodies import pack
from proctor.store.pages import Row
from proctor.store.records import children, find_by_slug, link, public_record, unlink

PUBLIC = "public_slug"
"""The link from a benchmark that everybody may run to its slug."""

_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,98}[a-z0-9])?")
_NOT_IN_SLUG = re.compile(r"[^a-z0-9]+")


def _slug(value: Json) -> str:
    if not isinstance(value, str) or not _SLUG.fullmatch(value):
        raise ValueError(f"expected lower-case letters, digits and hyphens, at most 100, got {show(value, 60)}")
    return value


BENCHMARK = Resource(
    kind="benchmark",
    prefix="bench",
    what="benchmark",
    table={
        "name": Field(text(200), required=True, null=False),
        "description": Field(text(1000, 0)),
        "environment_id": Field(text(200)),
        "timeout": Field(number(most=1e7)),
        "concurrency": Field(whole(), default=1, null=False),
        "slug": Field(_slug, null=False),
        "visibility": Field(one_of("Public", "Private"), default="Private", null=False),
    },
)
VERSION = Resource(
    kind="benchmark_version", prefix="bv", what="version of a benchmark", table={}, parent=Parent("benchmark_id", "benchmark", "benchmark")
)
_PUBLISH = {"visibility": Field(one_of("Public", "Private"))}


async def list_benchmarks(hub: Hub, caller: Caller, *, limit: int | None = None, cursor: str | None = None) -> dict[str, Json]:
    """A page of benchmarks."""
    page, _ = await resources.list_rows(hub, caller, BENCHMARK, limit=limit, cursor=cursor)
    return resources.page_of(page, [shown_benchmark(row) for row in page.rows])


async def create_benchmark(hub: Hub, caller: Caller, given: Mapping[str, Json]) -> dict[str, Json]:
    """A new benchmark: `name`, `environment_id?`, `timeout?`, `concurrency?`, `slug?`, `visibility?`, `description?`."""
    authorize(caller)
    body = BENCHMARK.read(given)
    async with hub.database.writing() as connection:
        slug = body.pop("slug") or await _free_slug(connection, caller, body["name"])
        await _check_environment(connection, caller, body)
        row = await resources.keep(connection, hub, caller, BENCHMARK, body, slug=slug)
        await _link_environment(connection, hub, row["id"], body)
        return shown_benchmark(row)


async def get_benchmark(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """One benchmark."""
    authorize(caller)
    async with hub.database.reading() as connection:
        return shown_benchmark(await required(connection, caller, "benchmark", id))


async def update_benchmark(hub: Hub, caller: Caller, id: str, given: Mapping[str, Json]) -> dict[str, Json]:
    """Change a benchmark; published versions stay what they are, and so does the slug of a published one."""
    authorize(caller)
    changes = BENCHMARK.read(given, partial=True)
    async with hub.database.writing() as connection:
        row = await required(connection, caller, "benchmark", id, lock=True)
        slug = changes.pop("slug", row["slug"])
        if slug != row["slug"] and row["body"].get("version"):
            raise Refusal("CONFLICT", f"the benchmark is published as {row['slug']}; its slug cannot change any more")
        await _check_environment(connection, caller, changes)
        row = await resources.rewrite(connection, hub, caller, BENCHMARK, row, changes, slug=slug)
        if "environment_id" in changes:
            await _link_environment(connection, hub, id, changes)
        await _link_slug(connection, hub, row)
        return shown_benchmark(row)


async def delete_benchmark(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a benchmark with its tasks, criteria and versions; runs keep what they were made of."""
    authorize(caller)
    async with hub.database.writing() as connection:
        await required(connection, caller, "benchmark", id, lock=True)
        organization_id = caller.organization_id
        tasks = [row["id"] for row in await children(connection, organization_id, "task", id)]
        criteria = [row["id"] for row in await children(connection, organization_id, "criterion", tasks)]
        versions = [row["id"] for row in await children(connection, organization_id, "benchmark_version", id)]
        await resources.remove(connection, hub, caller, BENCHMARK, [id, *tasks, *criteria, *versions])


async def publish_benchmark(hub: Hub, caller: Caller, id: str, given: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """Freeze the benchmark as its next version; `visibility?` is changed along."""
    authorize(caller)
    changes = {name: value for name, value in read_fields(_PUBLISH, given or {}, "publication").items() if value is not None}
    async with hub.database.writing() as connection:
        row = await required(connection, caller, "benchmark", id, lock=True)
        snapshot = await snapshot_of(connection, caller, row)
        if not snapshot["tasks"]:
            raise Refusal("CONFLICT", "a benchmark without tasks cannot be published")
        number = (row["body"].get("version") or 0) + 1
        row = await resources.rewrite(connection, hub, caller, BENCHMARK, row, {**changes, "version": number}, action="publish")
        snapshot["version"] = number
        body: dict[str, Json] = {"benchmark_id": id, "version": number, "name": row["body"]["name"]}
        await resources.keep(connection, hub, caller, VERSION, body, slug=f"{row['slug']}@{number}", blob=pack(snapshot))
        await _link_slug(connection, hub, row)
        return shown_benchmark(row)


async def list_versions(hub: Hub, caller: Caller, id: str, *, limit: int | None = None, cursor: str | None = None) -> dict[str, Json]:
    """A page of a benchmark's published versions."""
    page, _ = await resources.list_rows(hub, caller, VERSION, parent_id=id, limit=limit, cursor=cursor)
    return resources.page_of(page, [_shown_version(row) for row in page.rows])


def shown_benchmark(row: Row) -> dict[str, Json]:
    """A benchmark in the shape of the wire."""
    version = row["body"].get("version")
    reference = f"{row['slug']}@{version}" if version else None
    more = {"slug": row["slug"], "version": version, "published": version is not None, "reference": reference}
    return {**BENCHMARK.shown(row), **more}


def _shown_version(row: Row) -> dict[str, Json]:
    head = {"id": row["id"], "benchmark_id": row["parent_id"], "version": row["body"]["version"]}
    return {**head, "name": row["body"]["name"], "reference": row["slug"], **stamps(row)}


# --- snapshots and versions -------------------------------------------------------------------------------------------


async def snapshot_of(connection: AsyncConnection, caller: Caller, row: Row) -> dict[str, Json]:
    """Everything a run of the benchmark needs, as it is now."""
    tasks = await children(connection, caller.organization_id, "task", row["id"])
    ids = [task["id"] for task in tasks]
    entities = await entities_of(connection, caller, ids)
    criteria: dict[str, list[Json]] = {id: [] for id in ids}
    for criterion in await children(connection, caller.organization_id, "criterion", ids):
        criteria[criterion["parent_id"]].append(criterion_document(criterion["id"], criterion["body"]))
    shown = shown_benchmark(row)
    head = {name: shown[name] for name in ("id", "name", "description", "environment_id", "timeout", "concurrency", "slug")}
    return {
        **head,
        "version": None,
        "tasks": [
            {
                **{name: value for name, value in TASK.shown(task).items() if name not in ("organization_id", "created_at", "updated_at")},
                "entities": [entity_document(entity) for entity in entities[task["id"]]],
                "criteria": criteria[task["id"]],
            }
            for task in tasks
        ],
    }


async def published_version(connection: AsyncConnection, caller: Caller, reference: str) -> Row:
    """The version that `slug@version` names: the caller's own, else a public one. Without `@version`, the newest."""
    slug, at, number = reference.partition("@")
    if not _SLUG.fullmatch(slug) or (at and not (number.isascii() and number.isdigit() and len(number) < 10)):
        raise Refusal("VALIDATION_ERROR", "the benchmark cannot be named so", fields={"benchmark": ["expected slug@version"]})
    own = await find_by_slug(connection, caller.organization_id, "benchmark", slug)
    for row in (own, await public_record(connection, "benchmark", PUBLIC, slug)):
        if row is not None and row["body"].get("version"):
            wanted = f"{slug}@{int(number) if at else row['body']['version']}"
            version = await find_by_slug(connection, row["organization_id"], "benchmark_version", wanted)
            if version is not None:
                return version
    raise not_found("benchmark", reference)


# --- inside a transaction ---------------------------------------------------------------------------------------------


async def _check_environment(connection: AsyncConnection, caller: Caller, body: Mapping[str, Json]) -> None:
    if body.get("environment_id") is not None:
        # Locked, so that it is not deleted meanwhile.
        await required(connection, caller, "environment", body["environment_id"], lock=True)


async def _link_environment(connection: AsyncConnection, hub: Hub, id: str, body: Mapping[str, Json]) -> None:
    await unlink(connection, id, USED_BY)
    if body.get("environment_id") is not None:
        await link(connection, id, USED_BY, body["environment_id"], hub.now())


async def _link_slug(connection: AsyncConnection, hub: Hub, row: Row) -> None:
    """The benchmark is to be found by everybody exactly when it is published and Public."""
    if not row["body"].get("version") or row["body"]["visibility"] != "Public":
        await unlink(connection, row["id"], PUBLIC)
        return
    other = await public_record(connection, "benchmark", PUBLIC, row["slug"])
    if other is not None and other["id"] != row["id"]:
        raise Refusal("CONFLICT", f"another public benchmark is called {row['slug']!r}")
    await link(connection, row["id"], PUBLIC, row["slug"], hub.now())


async def _free_slug(connection: AsyncConnection, caller: Caller, name: str) -> str:
    base = _NOT_IN_SLUG.sub("-", name.lower()).strip("-")[:60].strip("-") or "benchmark"
    slug, number = base, 1
    while await find_by_slug(connection, caller.organization_id, "benchmark", slug) is not None:
        number += 1
        slug = f"{base}-{number}"
    return slug
