"""`/benchmarks` and their published versions."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body as BodyOf
from fastapi import Response
from pydantic import Field

from proctor.rest.route_parts import PageOf, TheCaller, TheHub, ThePaging, given, routed
from proctor.rest.routes.verification.bodies import Description, Name, Seconds, Stamped, Written
from proctor.service.verification import benchmarks

router = routed("benchmarks")
Slug = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9_-]{0,98}[a-z0-9])?$")]
Concurrency = Annotated[int, Field(ge=1, le=1000)]


class Benchmark(Stamped):
    """Tasks under one name."""

    name: str
    description: str | None
    environment_id: str | None
    timeout: float | None = Field(description="seconds per task")
    concurrency: int
    slug: str
    version: int | None = Field(description="the newest published one")
    published: bool
    reference: str | None = Field(description="slug@version of the newest published version")
    visibility: str = Field(description="Public: any organization's solver may run it")


class BenchmarkVersion(Stamped):
    """A published version, which never changes."""

    benchmark_id: str
    version: int
    name: str
    reference: str = Field(description="slug@version")


class NewBenchmark(Written):
    """What a benchmark is made of."""

    name: Name
    description: Description = None
    environment_id: str | None = None
    timeout: Seconds | None = None
    concurrency: Concurrency = 1
    slug: Slug = Field("", description="left out: made of the name")
    visibility: str = Field("Private", description="Public or Private")


class BenchmarkChanges(Written):
    """What changes; the rest stays."""

    name: Name = ""
    description: Description = None
    environment_id: str | None = None
    timeout: Seconds | None = None
    concurrency: Concurrency = 1
    slug: Slug = ""
    visibility: str = ""


class Publication(Written):
    """How a benchmark is published."""

    visibility: str | None = Field(None, description="Public or Private; left out: as it is")


@router.get("/benchmarks", response_model=PageOf[Benchmark])
async def list_benchmarks(hub: TheHub, caller: TheCaller, paging: ThePaging) -> object:
    """List benchmarks, newest first."""
    return await benchmarks.list_benchmarks(hub, caller, limit=paging.limit, cursor=paging.cursor)


@router.post("/benchmarks", response_model=Benchmark, status_code=201)
async def create_benchmark(hub: TheHub, caller: TheCaller, body: NewBenchmark) -> object:
    """Create a benchmark."""
    return await benchmarks.create_benchmark(hub, caller, given(body))


@router.get("/benchmarks/{benchmark_id}", response_model=Benchmark)
async def get_benchmark(hub: TheHub, caller: TheCaller, benchmark_id: str) -> object:
    """Read a benchmark."""
    return await benchmarks.get_benchmark(hub, caller, benchmark_id)


@router.patch("/benchmarks/{benchmark_id}", response_model=Benchmark)
async def update_benchmark(hub: TheHub, caller: TheCaller, benchmark_id: str, body: BenchmarkChanges) -> object:
    """Change a benchmark; published versions stay what they are."""
    return await benchmarks.update_benchmark(hub, caller, benchmark_id, given(body))


@router.delete("/benchmarks/{benchmark_id}", status_code=204)
async def delete_benchmark(hub: TheHub, caller: TheCaller, benchmark_id: str) -> Response:
    """Delete a benchmark with its tasks, criteria and versions; runs stay."""
    await benchmarks.delete_benchmark(hub, caller, benchmark_id)
    return Response(status_code=204)


@router.post("/benchmarks/{benchmark_id}/publish", response_model=Benchmark)
async def publish_benchmark(
    hub: TheHub, caller: TheCaller, benchmark_id: str, body: Annotated[Publication | None, BodyOf()] = None
) -> object:
    """Freeze the benchmark as its next version, `slug@version`."""
    return await benchmarks.publish_benchmark(hub, caller, benchmark_id, given(body) if body is not None else None)


@router.get("/benchmarks/{benchmark_id}/versions", response_model=PageOf[BenchmarkVersion])
async def list_versions(hub: TheHub, caller: TheCaller, benchmark_id: str, paging: ThePaging) -> object:
    """List the published versions of a benchmark, newest first."""
    return await benchmarks.list_versions(hub, caller, benchmark_id, limit=paging.limit, cursor=paging.cursor)
