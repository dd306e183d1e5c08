"""Benchmarks: named sets of tasks, published in immutable versions.

A version (`slug@3`) is a frozen copy of the benchmark, its tasks, their entities and criteria. Solvers of every organization can run a
published Public benchmark; its slug belongs to the first organization that made it public.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Unpack

from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal, not_found
from proctor.service.verification.authoring.criteria import ENTITIES, make_criterion_document, make_entity_document
from proctor.service.verification.authoring.environments import USED_BY
from proctor.service.verification.authoring.tasks import TASK, check_systems_of_tasks
from proctor.service.verification.shared.declaration import Operation, Resource, ToolWords
from proctor.service.verification.shared.fields import (
    DESCRIPTION,
    NAME,
    Field,
    Shape,
    id_of,
    matching,
    number,
    one_of,
    read_fields,
    read_only,
    read_only_id,
    whole,
)
from proctor.service.verification.shared.resources import Paging, Records, Rules, Transaction, declare_standard, list_plain, writing
from proctor.store.sql.compressed_json import pack
from proctor.store.sql.pages import Row
from proctor.store.sql.verification_records import public_record

PUBLIC = "public_slug"
"""The link from a Public benchmark to its slug."""

_SLUG = re.compile(r"[a-z0-9]([a-z0-9_-]{0,98}[a-z0-9])?")
_NOT_IN_SLUG = re.compile(r"[^a-z0-9]+")

_VISIBILITY = Field(
    one_of("Public", "Private"),
    "who may run its published versions: Public (the solvers of every organization) or Private",
    default="Private",
    null=False,
    tool={"enum": ["Public", "Private"]},
)


BENCHMARK = Resource(
    kind="benchmark",
    prefix="bench",
    name="Benchmark",
    about="A named set of tasks.",
    tag="benchmarks",
    tool=ToolWords(
        "benchmarks",
        "Benchmarks",
        "Author benchmarks: named sets of tasks. `publish` freezes the next version (slug@version).",
    ),
    fields={
        "name": NAME,
        "description": DESCRIPTION,
        "environment_id": Field(id_of("environment"), "the environment of its tasks; optional"),
        "timeout": Field(number(most=1e7), "seconds per task"),
        "concurrency": Field(whole(), "concurrent tasks of one run (default 1)", default=1, null=False),
        "threshold": Field(number(most=1.0), "minimum score of a pass, below which it is a fail; default: pass from 0.9, partial above 0"),
        "slug": Field(
            matching(_SLUG.pattern, "lower-case letters, digits and hyphens, at most 100"),
            "its name in references; default: derived from the name",
            null=False,
            compute=lambda row: row["slug"],
        ),
        "version": read_only("integer", "the newest published version", null=True),
        "published": read_only(
            "boolean", "whether there is a published version", compute=lambda row: row["body"].get("version") is not None
        ),
        "reference": read_only(
            "string",
            "slug@version of the newest published version",
            null=True,
            compute=lambda row: f"{row['slug']}@{row['body']['version']}" if row["body"].get("version") else None,
        ),
        "visibility": _VISIBILITY,
    },
)
VERSION = Resource(
    kind="benchmark_version",
    prefix="bv",
    name="BenchmarkVersion",
    about="An immutable published version.",
    fields={
        "benchmark_id": read_only_id("benchmark", "its benchmark"),
        "version": read_only("integer", "1 for the first"),
        "name": read_only("string", "name of the benchmark at that time"),
        "reference": read_only("string", "slug@version", compute=lambda row: row["slug"]),
    },
    parent="benchmark_id",
)
_PUBLICATION = Shape(
    "Publication", "How a benchmark is published.", {"visibility": dataclasses.replace(_VISIBILITY, default=None, null=True)}
)


async def _check_benchmark(tx: Transaction, body: dict[str, Json], row: Row | None) -> dict[str, Json]:
    if row is None:
        slug = body.pop("slug") or await _find_free_slug(tx, body["name"])
    else:
        slug = body.pop("slug", row["slug"])
        if slug != row["slug"] and row["body"].get("version"):
            raise Refusal("CONFLICT", f"the benchmark is published as {row['slug']}, so that its slug cannot change")
    if body.get("environment_id") is not None:
        # Locked, so that it is not deleted concurrently.
        await tx.require("environment", body["environment_id"], lock=True)
    return {"slug": slug}


async def _link_benchmark(tx: Transaction, row: Row) -> None:
    await tx.unlink(row["id"], USED_BY)
    if row["body"].get("environment_id") is not None:
        await tx.link(row["id"], USED_BY, row["body"]["environment_id"])
    await _link_slug(tx, row)


async def _list_parts(tx: Transaction, id: str) -> list[str]:
    """Return the ids of the tasks, criteria and versions of a benchmark."""
    tasks = [row["id"] for row in await tx.children("task", id)]
    criteria = await tx.children("criterion", tasks)
    versions = await tx.children("benchmark_version", id)
    return [*tasks, *(row["id"] for row in (*criteria, *versions))]


_, create_benchmark, get_benchmark, _, _ = declare_standard(
    BENCHMARK,
    "/benchmarks",
    Rules(check=_check_benchmark, link=_link_benchmark, drop=_list_parts),
    list="List benchmarks, newest first.",
    create="Create a benchmark.",
    get="Read a benchmark.",
    update="Change a benchmark; published versions do not change, nor does the slug of a published benchmark.",
    delete="Delete a benchmark with its tasks, criteria and versions; runs store their own copies.",
)


@Operation(
    BENCHMARK, "POST /benchmarks/{benchmark_id}/publish", takes=_PUBLICATION, takes_optional=True, gives=BENCHMARK.whole, tool="publish"
)
async def publish_benchmark(hub: Hub, caller: Caller, id: str, request_body: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """Publish the benchmark as its next version, `slug@version`, optionally with another visibility."""
    sent = read_fields(_PUBLICATION.fields, request_body or {}, "publication")
    changes = {name: value for name, value in sent.items() if value is not None}
    async with writing(hub, caller) as tx:
        row = await tx.require("benchmark", id, lock=True)
        snapshot = await take_snapshot(tx, row)
        if not snapshot["tasks"]:
            raise Refusal("CONFLICT", "a benchmark without tasks cannot be published")
        await check_systems_of_tasks(tx, snapshot)
        number = (row["body"].get("version") or 0) + 1
        row = await tx.change(BENCHMARK, row, {**changes, "version": number}, action="publish")
        snapshot["version"] = number
        body: dict[str, Json] = {"benchmark_id": id, "version": number, "name": row["body"]["name"]}
        await tx.add(VERSION, body, slug=f"{row['slug']}@{number}", blob=pack(snapshot))
        await _link_slug(tx, row)
        return BENCHMARK.show(row)


@Operation(BENCHMARK, "GET /benchmarks/{benchmark_id}/versions", gives=VERSION.summary, pages=True, tool="listVersions")
async def list_versions(hub: Hub, caller: Caller, id: str, **paging: Unpack[Paging]) -> Records:
    """List the published versions of a benchmark, newest first."""
    return await list_plain(hub, caller, VERSION, parent_id=id, **paging)


async def take_snapshot(tx: Transaction, row: Row) -> dict[str, Json]:
    """Return everything a run of the benchmark needs, as it is now."""
    tasks = await tx.children("task", row["id"])
    ids = [task["id"] for task in tasks]
    entities = await tx.linked(ENTITIES, ids, "entity")
    criteria: dict[str, list[Json]] = {id: [] for id in ids}
    for criterion in await tx.children("criterion", ids):
        criteria[criterion["parent_id"]].append(make_criterion_document(criterion["id"], criterion["body"]))
    benchmark = BENCHMARK.show(row)
    head = ("id", "name", "description", "environment_id", "timeout", "concurrency", "slug", "threshold")
    return {
        **{name: benchmark[name] for name in head},
        "version": None,
        "tasks": [
            {
                **{name: value for name, value in TASK.show(task).items() if name not in ("organization_id", "created_at", "updated_at")},
                "entities": [make_entity_document(entity) for entity in entities[task["id"]]],
                "criteria": criteria[task["id"]],
            }
            for task in tasks
        ],
    }


async def find_published_version(tx: Transaction, reference: str) -> Row:
    """Return the version of `slug@version`: the caller's own, else a public one. Without `@version`, the newest."""
    slug, at, number = reference.partition("@")
    # `isdigit` alone also accepts digits that `int` rejects, such as a superscript two.
    if not _SLUG.fullmatch(slug) or (at and not (number.isascii() and number.isdigit() and len(number) < 10)):
        raise Refusal("VALIDATION_ERROR", "invalid benchmark reference", fields={"benchmark": ["expected slug@version"]})
    own_benchmark = await tx.find_by_slug("benchmark", slug)
    for row in (own_benchmark, await public_record(tx.connection, "benchmark", PUBLIC, slug)):
        if row is not None and row["body"].get("version"):
            full_name = f"{slug}@{int(number) if at else row['body']['version']}"
            version = await tx.act_for(row["organization_id"]).find_by_slug("benchmark_version", full_name)
            if version is not None:
                return version
    raise not_found("benchmark", reference)


async def _link_slug(tx: Transaction, row: Row) -> None:
    """Link the slug publicly if the benchmark is published and Public."""
    if not row["body"].get("version") or row["body"]["visibility"] != "Public":
        await tx.unlink(row["id"], PUBLIC)
        return
    other = await public_record(tx.connection, "benchmark", PUBLIC, row["slug"])
    if other is not None and other["id"] != row["id"]:
        raise Refusal("CONFLICT", f"another public benchmark already has the slug {row['slug']!r}")
    await tx.link(row["id"], PUBLIC, row["slug"])


async def _find_free_slug(tx: Transaction, name: str) -> str:
    base = _NOT_IN_SLUG.sub("-", name.lower()).strip("-")[:60].strip("-") or "benchmark"
    slug, number = base, 1
    while await tx.find_by_slug("benchmark", slug) is not None:
        number += 1
        slug = f"{base}-{number}"
    return slug
