"""The nouns of running a benchmark: benchmark runs, their task runs, and what each criterion came to."""

from __future__ import annotations

from proctor.service.verification.shared.declaration import Resource, ToolWords
from proctor.service.verification.shared.fields import FLAG, OBJECT, Field, Shape, id_of, nested_field, read_only, read_only_id, text, whole

_PHASE = read_only("string", "created, started or completed", default="created")
_TIMES = {
    "started_at": read_only("string", "when it was started", null=True),
    "completed_at": read_only("string", "when it ended", null=True),
}
_ONE_STATE = (
    "the end state to verify on: {fhir: {resources: [...]}, hl7: {outbound: [...]}, portal: {collection: [rows]}, "
    "files: [{path, content}], voice: {turns: [{speaker, text, call, to, from}]}, x12: {responses: [...]}, fax: {documents: [...]}, "
    "messages: {messages: [...]}, cds: {cards: [...]}, records: {collection: [rows]}}"
)
UPLOAD = Shape("State", "The end state of a run.", {"state": Field(OBJECT, _ONE_STATE, required=True, null=False)})
KEPT_STATE = Shape(
    "KeptState",
    "What was uploaded.",
    {
        "families": read_only("array", "which systems it is of", items={"type": "string"}),
        "bytes": read_only("integer", "as it is kept, compressed"),
        "updated_at": read_only("string", "when it was uploaded"),
    },
)
CRITERION_RUN = Resource(
    kind="criterion_run",
    prefix="crun",
    name="CriterionRun",
    about="What a criterion came to.",
    tag="benchmark runs",
    tool=ToolWords(
        "criterion-runs",
        "Criterion runs",
        "What each criterion came to in a completed task run: passed, score, a sentence, and the evidence field by field.",
    ),
    fields={
        "task_run_id": read_only_id("task_run", "the task run it belongs to"),
        "criterion_id": read_only_id("criterion", "what was decided"),
        "passed": read_only("boolean", "whether it holds"),
        "score": read_only("number", "0 to 1"),
        "details": read_only("string", "why, in a sentence", null=True),
        "evidence": read_only("object", "what was found, field by field", null=True),
        "outcome": read_only("string", "pass, fail, skip, or error when it could not be decided"),
        "code": read_only("string", "the reason as a code, where there is one", null=True),
        **_TIMES,
        "started_at": read_only("string", "when it was begun"),
    },
    parent="task_run_id",
)
TASK_RUN = Resource(
    kind="task_run",
    prefix="tr",
    name="TaskRun",
    about="One attempt at a task.",
    tag="benchmark runs",
    tool=ToolWords(
        "task-runs",
        "Task runs",
        "The task runs of a benchmark run: put the end state of one, complete it (verified at once), and read verdict, score, axes "
        "and criterion runs.",
    ),
    fields={
        "benchmark_run_id": read_only_id("benchmark_run", "the benchmark run it belongs to"),
        "task_id": read_only_id("task", "what was to be done"),
        "name": read_only("string", "of the task"),
        "playground_id": read_only_id("playground", "where it was done", null=True),
        "status": read_only("string", "active, completed, cancelled, failed or timed_out", default="active"),
        "phase": _PHASE,
        "verdict": read_only("string", "pass, partial or fail; null until it is known", null=True),
        "score": read_only("number", "0 to 1; null until it is known", null=True),
        "undecided": read_only("integer", "criteria that could not be decided; each counts 0 in the score", default=0),
        "axes": read_only("object", "score and weight by axis", default={}),
        "outcome": read_only("string", "pass, fail, skip, or error when it could not be decided; null until it is known", null=True),
        "timeout": read_only("number", "seconds it may take", null=True),
        **_TIMES,
        "criterion_runs": nested_field(CRITERION_RUN.whole, "what each criterion came to", full=True),
        "snapshot": read_only("object", "the task as it was when the run was made", null=True, full=True),
    },
    parent="benchmark_run_id",
)
TASK_RUN_OF_RUN = TASK_RUN.summary.extend(
    "TaskRunOfRun", "The same with its criterion runs.", {"criterion_runs": TASK_RUN.fields["criterion_runs"]}
)
RUN = Resource(
    kind="benchmark_run",
    prefix="br",
    name="BenchmarkRun",
    about="One go at a benchmark.",
    tag="benchmark runs",
    tool=ToolWords(
        "benchmark_runs",
        "Benchmark runs",
        "Run a benchmark and read how it went: start it, put the end state (for all its tasks here, or for one with `task-runs`), "
        "complete it, and get it: status (active, completed, cancelled, failed), verdict (pass, partial, fail), score, and its task runs.",
    ),
    fields={
        "benchmark_id": Field(id_of("benchmark"), "the benchmark", required=True, null=False),
        "version": Field(whole(most=10**9), "a published version; left out: the benchmark as it is now", shown=False),
        "status": read_only("string", "active, completed, cancelled or failed", default="active"),
        "phase": _PHASE,
        "scored": Field(FLAG, "withhold details and evidence from the agent (default false)", default=False, null=False),
        "verdict": read_only("string", "pass, partial or fail; null until it is known", null=True),
        "score": read_only("number", "0 to 1; null until it is known", null=True),
        "outcome": read_only("string", "pass, fail, skip, or error when it could not be decided; null until it is known", null=True),
        "agent": Field(text(200), "who is examined"),
        "published": read_only("boolean", "whether it is on the leaderboard", default=False),
        "benchmark": read_only("object", "slug, version and name; no version: as it was when the run was made"),
        "solver_id": read_only_id("solver", "whose key started it", null=True),
        "solver": read_only("object", "alias, real_name and agent_version of the solver when it started the run", null=True),
        "unlisted": read_only("boolean", "whether who started it keeps it off leaderboards", default=False),
        **_TIMES,
        "task_runs": nested_field(TASK_RUN_OF_RUN, "one per task", full=True),
    },
    parent="benchmark_id",
)
