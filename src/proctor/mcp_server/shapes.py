"""What the records of the verification API look like in results: the schemas of the tools' output."""

from __future__ import annotations

from proctor.mcp_server.arguments import Schema
from proctor.mcp_server.tool import optional_text, shape

_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
_SCORE: Schema = {"type": ["number", "null"]}
_FLAG: Schema = {"type": "boolean"}
_ANY: Schema = {}
_OBJECT: Schema = {"type": ["object", "null"]}
_MADE: dict[str, Schema] = {"createdAt": _TEXT}
_ID: dict[str, Schema] = {"id": _TEXT}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


CRITERION = shape(
    {**_ID, "taskId": _TEXT, "label": _TEXT, "assertion": _ANY, "weight": _NUMBER, "axis": optional_text()} | _MADE,
    inputEntityId=optional_text(),
)
EVAL = shape({**_ID, "taskId": _TEXT, "label": _TEXT, "assert": _TEXT, "weight": _NUMBER} | _MADE)
CRITERION_RUN = shape(
    {
        **_ID,
        "taskRunId": _TEXT,
        "criterionId": _TEXT,
        "passed": _FLAG,
        "score": _NUMBER,
        "details": optional_text(),
        "evidence": _OBJECT,
    },
    outcome=optional_text(),
    startedAt=optional_text(),
    completedAt=optional_text(),
)
EVAL_RUN = shape({**_ID, "taskRunId": _TEXT, "evalId": _TEXT, "passed": _FLAG, "score": _NUMBER, "details": optional_text()})
ENTITY = shape({**_ID, "datasetId": _TEXT, "name": optional_text(), "data": {"type": "object"}})
TASK = shape(
    {
        **_ID,
        "benchmarkId": _TEXT,
        "name": _TEXT,
        "taskItem": _OBJECT,
        "scenario": _OBJECT,
        "tags": _list(_TEXT),
        "timeout": _SCORE,
        "entities": _list(ENTITY),
    }
    | _MADE,
    criteria=_list({"type": "object"}),
)
TASK_RUN = shape(
    {
        **_ID,
        "benchmarkRunId": _TEXT,
        "taskId": _TEXT,
        "status": _TEXT,
        "phase": _TEXT,
        "verdict": optional_text(),
        "score": _SCORE,
        "axes": {"type": "object"},
    },
    criterionRuns=_list(CRITERION_RUN),
    snapshot=_OBJECT,
    taskItem=_OBJECT,
)
BENCHMARK = shape(
    {**_ID, "name": _TEXT, "environmentId": optional_text(), "slug": _TEXT, "published": _FLAG, "visibility": _TEXT} | _MADE,
    version={"type": ["integer", "null"]},
    reference=optional_text(),
)
VERSION = shape({**_ID, "benchmarkId": _TEXT, "version": {"type": "integer"}, "reference": _TEXT})
BENCHMARK_RUN = shape(
    {**_ID, "benchmarkId": _TEXT, "status": _TEXT, "phase": _TEXT, "scored": _FLAG, "verdict": optional_text(), "score": _SCORE},
    taskRuns=_list(TASK_RUN),
)
STATE = shape({"families": _list(_TEXT), "updatedAt": _TEXT})
SIMULATOR = shape({**_ID, "type": _TEXT, "name": _TEXT, "config": _OBJECT} | _MADE)
ENVIRONMENT = shape(
    {
        **_ID,
        "name": _TEXT,
        "description": optional_text(),
        "simulators": _list(shape({**_ID, "type": _TEXT, "name": _TEXT})),
    }
    | _MADE
)
DATASET = shape({**_ID, "name": _TEXT, "type": _TEXT, "format": _TEXT} | _MADE, data=_ANY)
