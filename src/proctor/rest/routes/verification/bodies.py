"""What requests and answers of the verification API have in common.

Names are snake_case; camelCase is read, too, in bodies and in the queries of lists.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Query, Request
from pydantic import AliasChoices, AliasGenerator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from proctor.rest.route_parts import Body


def _both(name: str) -> AliasChoices | str:
    camel = to_camel(name)
    # The first choice is what OpenAPI shows.
    return AliasChoices(name, camel) if camel != name else name


class Written(Body):
    """A body whose names are read in snake_case and camelCase."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=AliasGenerator(validation_alias=_both))


class Shown(BaseModel):
    """Something that is shown. More may be added to it."""

    model_config = ConfigDict(extra="allow")


class Stamped(Shown):
    """Whose a record is, and when it was made and changed."""

    id: str
    organization_id: str
    created_at: str
    updated_at: str


Object = dict[str, Any]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Description = Annotated[str | None, Field(max_length=1000)]
Seconds = Annotated[float, Field(gt=0, le=1e7, description="seconds")]


def _of(request: Request, name: str, value: str | None) -> str | None:
    return value if value is not None else request.query_params.get(to_camel(name))


def of_task(request: Request, task_id: Annotated[str | None, Query(description="of this task only")] = None) -> str | None:
    """The task a list is narrowed to."""
    return _of(request, "task_id", task_id)


def of_benchmark(request: Request, benchmark_id: Annotated[str | None, Query(description="of this benchmark only")] = None) -> str | None:
    """The benchmark a list is narrowed to."""
    return _of(request, "benchmark_id", benchmark_id)


def of_playground(
    request: Request, playground_id: Annotated[str | None, Query(description="of this playground only")] = None
) -> str | None:
    """The playground a list is narrowed to."""
    return _of(request, "playground_id", playground_id)


def of_benchmark_run(
    request: Request, benchmark_run_id: Annotated[str | None, Query(description="of this benchmark run only")] = None
) -> str | None:
    """The benchmark run a list is narrowed to."""
    return _of(request, "benchmark_run_id", benchmark_run_id)


def of_task_run(request: Request, task_run_id: Annotated[str | None, Query(description="of this task run only")] = None) -> str | None:
    """The task run a list is narrowed to."""
    return _of(request, "task_run_id", task_run_id)


OfTask = Annotated[str | None, Depends(of_task)]
OfBenchmark = Annotated[str | None, Depends(of_benchmark)]
OfPlayground = Annotated[str | None, Depends(of_playground)]
OfBenchmarkRun = Annotated[str | None, Depends(of_benchmark_run)]
OfTaskRun = Annotated[str | None, Depends(of_task_run)]
