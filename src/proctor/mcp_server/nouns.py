"""The tools of the verification API: one per noun, with the actions, parameters and results that its clients know, in camelCase.

They are for authors: everything here needs an organization key. Agents under test use REST, with the token of their run.
"""

from __future__ import annotations

from typing import cast

from proctor.mcp_server import shapes
from proctor.mcp_server.arguments import Schema
from proctor.mcp_server.tool import DELETED, PAGING, Action, Desk, Tool, a_list, amount, an_object, flag, page_of, text
from proctor.mcp_server.verbs import Record, creating, deleting, doing, getting, listing, updating
from proctor.service.verification import (
    benchmark_runs,
    benchmarks,
    criteria,
    criterion_runs,
    datasets,
    environments,
    legacy_evals,
    simulators,
    task_runs,
    tasks,
)
from proctor.service.verification.resources import authorize

_ID = {"id": text("which one; not for list and create")}
_LABEL = {"label": text("short, for people")}
_WEIGHT = {"weight": amount("relative to the other criteria of the task, above 0 (default 1)")}
_NAME = {"name": text("what it is called")}
_DESCRIPTION = {"description": text("what it is for", null=True)}
_STATE = {
    "state": an_object(
        "the end state to verify on: {fhir: {resources: [...]}, hl7: {outbound: [...]}, portal: {collection: [rows]}, "
        "files: [{path, content}], voice: {turns: [{speaker, text}]}, x12: {responses: [...]}}"
    )
}


def _or(*shapes_of: Schema) -> Schema:
    return {"anyOf": list(shapes_of)}


def _crud(record: Schema) -> Schema:
    return _or(record, page_of(record), DELETED)


CRITERIA = Tool(
    name="criteria",
    title="Criteria",
    about="Author the criteria of a task: typed assertions on the end state of simulated systems, decided without a model. "
    "One assertion per criterion; create benchmark, task and then criteria. `assertion.assert` is one of fhir-resource-state, "
    "hl7-structural, portal-state-match, sftp-file-present, voice-transcript, x12-response. An assertion that cannot be understood is "
    "refused with the path and the nearest right word.",
    properties={
        **_ID,
        "taskId": text("the task it belongs to"),
        **_LABEL,
        "assertion": {
            "type": ["object", "string"],
            "description": 'such as {"assert": "fhir-resource-state", "resource_type": "Appointment", "search": {"status": "booked"}, '
            '"fields": [{"path": "participant.0.actor.display", "expected": "Dr. Rivera"}]}',
        },
        **_WEIGHT,
        "axis": text("a dimension to score it under, such as correctness or safety", null=True),
        "inputEntityId": text("the entity of the task it is about; `{entity.field}` in the assertion reads from it", null=True),
        **PAGING,
    },
    result=_crud(shapes.CRITERION),
    actions={
        "list": listing(criteria.list_criteria, "taskId", does="the criteria of a task"),
        "create": creating(
            criteria.create_criterion, "taskId!", "label!", "assertion!", "weight", "axis", "inputEntityId", does="a new one"
        ),
        "get": getting(criteria.get_criterion, "one of them"),
        "update": updating(criteria.update_criterion, "label", "assertion", "weight", "axis", "inputEntityId", does="change it"),
        "delete": deleting(criteria.delete_criterion, "delete it"),
    },
    destroys=True,
)

EVALS = Tool(
    name="evals",
    title="Evals (legacy)",
    about="The generation before `criteria`: one text per eval. English is left to a judge; a typed assertion written as JSON is decided "
    "without one. Prefer `criteria`; both are the same records.",
    properties={
        **_ID,
        "taskId": text("the task it belongs to"),
        **_LABEL,
        "assert": text("an English sentence about what can be observed, or a typed assertion as JSON text"),
        **_WEIGHT,
        **PAGING,
    },
    result=_crud(shapes.EVAL),
    actions={
        "list": listing(legacy_evals.list_evals, "taskId", does="the evals of a task"),
        "create": creating(legacy_evals.create_eval, "taskId!", "label!", "assert!", "weight", does="a new one"),
        "get": getting(legacy_evals.get_eval, "one of them"),
        "update": updating(legacy_evals.update_eval, "label", "assert", "weight", does="change it"),
        "delete": deleting(legacy_evals.delete_eval, "delete it"),
    },
    destroys=True,
)

CRITERION_RUNS = Tool(
    name="criterion-runs",
    title="Criterion runs",
    about="What each criterion came to in a completed task run: passed, score, a sentence, and the evidence field by field.",
    properties={"id": text("which one; for get"), "taskRunId": text("the task run; for list"), **PAGING},
    result=_or(shapes.CRITERION_RUN, page_of(shapes.CRITERION_RUN)),
    actions={
        "list": listing(criterion_runs.list_criterion_runs, "taskRunId", does="those of a task run"),
        "get": getting(criterion_runs.get_criterion_run, "one of them, with its evidence"),
    },
)

EVAL_RUNS = Tool(
    name="eval-runs",
    title="Eval runs (legacy)",
    about="The generation before `criterion-runs`: passed, score and details, without structured evidence.",
    properties={"id": text("which one; for get"), "taskRunId": text("the task run; for list"), **PAGING},
    result=_or(shapes.EVAL_RUN, page_of(shapes.EVAL_RUN)),
    actions={
        "list": listing(legacy_evals.list_eval_runs, "taskRunId", does="those of a task run"),
        "get": getting(legacy_evals.get_eval_run, "one of them"),
    },
)


async def _bind(desk: Desk, given: Record) -> Record:
    return await tasks.bind_entity(desk.hub, desk.caller, given["id"], {"entity_id": given["entity_id"]})


async def _unbind(desk: Desk, given: Record) -> Record:
    await tasks.unbind_entity(desk.hub, desk.caller, given["id"], given["entity_id"])
    return {"id": given["entity_id"], "deleted": True}


async def _task_entities(desk: Desk, given: Record) -> Record:
    return await tasks.list_task_entities(desk.hub, desk.caller, given.pop("id"), **given)


TASKS = Tool(
    name="tasks",
    title="Tasks",
    about="Author the tasks of a benchmark: what the agent is asked (`taskItem`), and the entities it is about. On update null clears.",
    properties={
        **_ID,
        "benchmarkId": text("the benchmark it belongs to"),
        **_NAME,
        "timeout": amount("seconds; over it the task fails", null=True),
        "taskItem": an_object("handed to the agent; usually `instruction`, `trigger`, `expected_inputs`", null=True),
        "scenario": an_object("what happens before the agent starts", null=True),
        "tags": a_list("words to find it by", {"type": "string"}),
        "entityId": text("an entity of a dataset; for addEntity and removeEntity"),
        **PAGING,
    },
    result=_or(shapes.TASK, page_of(shapes.TASK), DELETED, shapes.ENTITY, page_of(shapes.ENTITY)),
    actions={
        "list": listing(tasks.list_tasks, "benchmarkId", does="the tasks of a benchmark"),
        "create": creating(tasks.create_task, "benchmarkId!", "name!", "timeout", "taskItem", "scenario", "tags", does="a new one"),
        "get": getting(tasks.get_task, "one of them, with its criteria"),
        "update": updating(tasks.update_task, "name", "timeout", "taskItem", "scenario", "tags", does="change it"),
        "delete": deleting(tasks.delete_task, "delete it and its criteria"),
        "listEntities": Action(call=_task_entities, does="the entities bound to it", takes=("id!", "limit", "cursor"), reads=True),
        "addEntity": Action(call=_bind, does="bind an entity to it", takes=("id!", "entityId!")),
        "removeEntity": Action(call=_unbind, does="take an entity off it", takes=("id!", "entityId!")),
    },
    destroys=True,
)


async def _publish(desk: Desk, given: Record) -> Record:
    return await benchmarks.publish_benchmark(desk.hub, desk.caller, given.pop("id"), given)


async def _versions(desk: Desk, given: Record) -> Record:
    return await benchmarks.list_versions(desk.hub, desk.caller, given.pop("id"), **given)


_BENCHMARK_FIELDS = ("description", "environmentId", "timeout", "concurrency", "slug", "visibility")
BENCHMARKS = Tool(
    name="benchmarks",
    title="Benchmarks",
    about="Author benchmarks: tasks under one name. `publish` freezes the next version (slug@version), which never changes again.",
    properties={
        **_ID,
        **_NAME,
        **_DESCRIPTION,
        "environmentId": text("the environment its tasks run in; may be left out", null=True),
        "timeout": amount("seconds per task", null=True),
        "concurrency": amount("tasks at once in one run (default 1)", whole=True),
        "slug": text("its name in references; made of the name where it is left out"),
        "visibility": text("who may run its published versions", "Public", "Private"),
        **PAGING,
    },
    result=_or(shapes.BENCHMARK, page_of(shapes.BENCHMARK), DELETED, page_of(shapes.VERSION)),
    actions={
        "list": listing(benchmarks.list_benchmarks, does="all of them"),
        "create": creating(benchmarks.create_benchmark, "name!", *_BENCHMARK_FIELDS, does="a new one"),
        "get": getting(benchmarks.get_benchmark, "one of them"),
        "update": updating(benchmarks.update_benchmark, "name", *_BENCHMARK_FIELDS, does="change it"),
        "delete": deleting(benchmarks.delete_benchmark, "delete it with its tasks and versions; runs stay"),
        "publish": Action(call=_publish, does="freeze the next version", takes=("id!", "visibility")),
        "listVersions": Action(call=_versions, does="its published versions", takes=("id!", "limit", "cursor"), reads=True),
    },
    destroys=True,
)


async def _put_run_state(desk: Desk, given: Record) -> Record:
    return await benchmark_runs.put_benchmark_run_state(desk.hub, desk.caller, given["id"], given["state"])


async def _unpublish(desk: Desk, given: Record) -> Record:
    return await benchmark_runs.publish_benchmark_run(desk.hub, desk.caller, given["id"], published=False)


_START = ("benchmarkId!", "version", "scored", "agent")
BENCHMARK_RUNS = Tool(
    name="benchmark_runs",
    title="Benchmark runs",
    about="Run a benchmark and read how it went: start it, put the end state (for all its tasks here, or for one with `task-runs`), "
    "complete it, and get it: status (active, completed, cancelled, failed), verdict (pass, partial, fail), score, and its task runs.",
    properties={
        "id": text("which one; not for list and start"),
        "benchmarkId": text("the benchmark"),
        "version": amount("a published version; the benchmark as it is now where it is left out", whole=True),
        "scored": flag("withhold details and evidence from the agent (default false)"),
        "agent": text("who is examined"),
        **_STATE,
        **PAGING,
    },
    result=_or(shapes.BENCHMARK_RUN, page_of(shapes.BENCHMARK_RUN), shapes.STATE),
    actions={
        "list": listing(benchmark_runs.list_benchmark_runs, "benchmarkId", does="the runs of a benchmark, or all"),
        "start": creating(benchmark_runs.create_benchmark_run, *_START, does="a new run with one task run per task"),
        "create": creating(benchmark_runs.create_benchmark_run, *_START, does="the same as start"),
        "get": getting(benchmark_runs.get_benchmark_run, "one of them, with task runs and criterion runs"),
        "putState": Action(call=_put_run_state, does="the state that all its tasks share", takes=("id!", "state!")),
        "complete": doing(benchmark_runs.complete_benchmark_run, "verify every open task, and end the run"),
        "cancel": doing(benchmark_runs.cancel_benchmark_run, "end it; completed tasks keep their results"),
        "publish": doing(benchmark_runs.publish_benchmark_run, "put a completed run on the leaderboard"),
        "unpublish": Action(call=_unpublish, does="take it off the leaderboard", takes=("id!",)),
    },
    destroys=True,
)


async def _put_state(desk: Desk, given: Record) -> Record:
    return await task_runs.put_task_run_state(desk.hub, desk.caller, given["id"], given["state"])


async def _start_task(desk: Desk, given: Record) -> Record:
    authorize(desk.caller)
    return await task_runs.start_task_run(desk.hub, desk.caller, given["id"])


async def _complete_task(desk: Desk, given: Record) -> Record:
    # The token of a run must not see what is withheld from it; it completes over REST.
    authorize(desk.caller)
    return await task_runs.complete_task_run(desk.hub, desk.caller, given["id"])


TASK_RUNS = Tool(
    name="task-runs",
    title="Task runs",
    about="The task runs of a benchmark run: put the end state of one, complete it (verified at once), and read verdict, score, axes and "
    "criterion runs.",
    properties={"id": text("which one; not for list"), "benchmarkRunId": text("the benchmark run"), **_STATE, **PAGING},
    result=_or(shapes.TASK_RUN, page_of(shapes.TASK_RUN), shapes.STATE),
    actions={
        "list": listing(task_runs.list_task_runs, "benchmarkRunId", does="those of a benchmark run"),
        "get": getting(task_runs.get_task_run, "one of them, with its criterion runs"),
        "start": Action(call=_start_task, does="start it; one of a run at a time", takes=("id!",)),
        "putState": Action(call=_put_state, does="the state it is verified on; replaces the one before", takes=("id!", "state!")),
        "complete": Action(call=_complete_task, does="verify it now", takes=("id!",)),
        "cancel": doing(task_runs.cancel_task_run, "end it without verifying"),
    },
    destroys=True,
)


async def _add_simulator(desk: Desk, given: Record) -> Record:
    return await environments.add_simulator(desk.hub, desk.caller, given["id"], given["simulator_id"])


async def _remove_simulator(desk: Desk, given: Record) -> Record:
    return await environments.remove_simulator(desk.hub, desk.caller, given["id"], given["simulator_id"])


ENVIRONMENTS = Tool(
    name="environments",
    title="Environments",
    about="Author environments: which simulators belong together. Create the simulators first, then link them with addSimulator.",
    properties={**_ID, **_NAME, **_DESCRIPTION, "simulatorId": text("for addSimulator and removeSimulator"), **PAGING},
    result=_crud(shapes.ENVIRONMENT),
    actions={
        "list": listing(environments.list_environments, does="all of them"),
        "create": creating(environments.create_environment, "name!", "description", does="a new one"),
        "get": getting(environments.get_environment, "one of them, with its simulators"),
        "update": updating(environments.update_environment, "name", "description", does="change it"),
        "delete": deleting(environments.delete_environment, "delete it"),
        "addSimulator": Action(call=_add_simulator, does="put a simulator into it", takes=("id!", "simulatorId!")),
        "removeSimulator": Action(call=_remove_simulator, does="take a simulator out of it", takes=("id!", "simulatorId!")),
    },
    destroys=True,
)

SIMULATORS = Tool(
    name="simulators",
    title="Simulators",
    about=f"Author simulated systems. Types: {', '.join(simulators.TYPES)}, in any case.",
    properties={**_ID, "type": text("what kind of system"), **_NAME, "config": an_object("settings of its kind", null=True), **PAGING},
    result=_crud(shapes.SIMULATOR),
    actions={
        "list": listing(simulators.list_simulators, does="all of them"),
        "create": creating(simulators.create_simulator, "type!", "name!", "config", does="a new one"),
        "get": getting(simulators.get_simulator, "one of them"),
        "update": updating(simulators.update_simulator, "type", "name", "config", does="change it"),
        "delete": deleting(simulators.delete_simulator, "delete it"),
    },
    destroys=True,
)


async def _dataset_entities(desk: Desk, given: Record) -> Record:
    return await datasets.list_entities(desk.hub, desk.caller, given.pop("id"), **given)


async def _create_entity(desk: Desk, given: Record) -> Record:
    return await datasets.create_entity(desk.hub, desk.caller, given.pop("id"), given)


async def _update_entity(desk: Desk, given: Record) -> Record:
    return await datasets.update_entity(desk.hub, desk.caller, given.pop("id"), given.pop("entity_id"), given)


async def _delete_entity(desk: Desk, given: Record) -> Record:
    await datasets.delete_entity(desk.hub, desk.caller, given["id"], given["entity_id"])
    return {"id": given["entity_id"], "deleted": True}


_DATASET_FIELDS = ("format", "type", "description", "config", "data")
DATASETS = Tool(
    name="datasets",
    title="Datasets",
    about="Author datasets: what a simulated system is filled with, and the entities in it that tasks are about.",
    properties={
        **_ID,
        **_NAME,
        "format": text("fhir or files"),
        "type": text("the same, as REST calls it"),
        **_DESCRIPTION,
        "config": an_object("settings", null=True),
        "data": cast(Schema, {"type": ["object", "array", "null"], "description": "FHIR: a Bundle; of an entity: its fields", "items": {}}),
        "entityId": text("an entity of the dataset"),
        **PAGING,
    },
    result=_or(shapes.DATASET, page_of(shapes.DATASET), DELETED, shapes.ENTITY, page_of(shapes.ENTITY)),
    actions={
        "list": listing(datasets.list_datasets, does="all of them, without their data"),
        "create": creating(datasets.create_dataset, "name!", *_DATASET_FIELDS, does="a new one"),
        "get": getting(datasets.get_dataset, "one of them, with its data"),
        "update": updating(datasets.update_dataset, "name", *_DATASET_FIELDS, does="change it"),
        "delete": deleting(datasets.delete_dataset, "delete it and its entities"),
        "listEntities": Action(call=_dataset_entities, does="its entities", takes=("id!", "limit", "cursor"), reads=True),
        "createEntity": Action(call=_create_entity, does="a new entity", takes=("id!", "name", "data")),
        "updateEntity": Action(call=_update_entity, does="change an entity", takes=("id!", "entityId!", "name", "data"), clears=True),
        "deleteEntity": Action(call=_delete_entity, does="delete an entity", takes=("id!", "entityId!")),
    },
    destroys=True,
)

NOUNS: tuple[Tool, ...] = (
    CRITERIA, EVALS, CRITERION_RUNS, EVAL_RUNS, TASKS, BENCHMARKS, BENCHMARK_RUNS, TASK_RUNS, ENVIRONMENTS, SIMULATORS, DATASETS,
)  # fmt: skip
