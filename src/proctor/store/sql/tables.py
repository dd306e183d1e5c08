"""The tables of the service, for SQLite and PostgreSQL alike.

Times are ISO 8601 text in UTC with milliseconds: they sort as they are and read the same in both databases. Ids are text with a prefix for
their kind. Every tenant's row has `organization_id`, and no query goes without it. Bodies (evidence, results, documents) are compressed
JSON: they are read whole or not at all.

The resources of the verification API (environments, tasks, criteria, runs of them) are plain records with a parent; their meaning is
in `service`.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

METADATA = sa.MetaData()


def clean_text(text: str) -> str:
    """Return text that both databases can store: PostgreSQL has no NUL character, and no encoding has half a surrogate pair."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", errors="replace").decode().replace("\0", "\ufffd")


class _Text(sa.TypeDecorator[str]):
    """Text that both databases can store."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """Return the text with unstorable characters replaced."""
        return None if value is None else clean_text(value)


def make_table(name: str, *columns: sa.schema.SchemaItem) -> sa.Table:
    """Return a table of the service."""
    return sa.Table(name, METADATA, *columns)


def text_column(name: str, *, null: bool = False, **options: object) -> sa.Column[str]:
    """Return a column of text that both databases can hold."""
    return sa.Column(name, _Text, nullable=null, **options)  # type: ignore[arg-type]  # type: ignore[arg-type]  # passed on unchanged


def id_columns(*others: str) -> tuple[sa.Column[str], ...]:
    """Return the primary key, the organization, and other columns of text."""
    return text_column("id", primary_key=True), *(text_column(name) for name in ("organization_id", *others))


def json_column(name: str) -> sa.Column[object]:
    """Return a JSON column, null by default."""
    return sa.Column(name, sa.JSON(none_as_null=True), nullable=True)


def integer_column(name: str, *, null: bool = False, default: int | None = None) -> sa.Column[int]:
    """Return a column of integers."""
    return sa.Column(name, sa.BigInteger, nullable=null, server_default=None if default is None else str(default))


def boolean_column(name: str, *, default: bool = False) -> sa.Column[bool]:
    """Return a boolean column."""
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.true() if default else sa.false())


def timestamp_columns() -> tuple[sa.Column[str], sa.Column[str]]:
    """Return the columns for the creation and modification time of a row."""
    return text_column("created_at"), text_column("updated_at")


def _index_where(name: str, where: sa.ColumnElement[bool], *columns: sa.Column[Any]) -> None:
    """Add an index for the rows that match `where`."""
    sa.Index(name, *columns, sqlite_where=where, postgresql_where=where)


run_figures = make_table(
    "run_figures",
    text_column("run_id", primary_key=True),
    sa.Column("facts", sa.LargeBinary, nullable=False),  # shown on the page of the run, next to its attempts
    sa.Column("tally", sa.LargeBinary, nullable=False),  # for comparisons
)


run_snapshots = make_table(
    "run_snapshots",
    text_column("run_id", primary_key=True),
    text_column("kind", primary_key=True),  # servers: what MCP servers offered; examination: what the doctor found
    sa.Column("body", sa.LargeBinary, nullable=False),
)

sandboxes = make_table(
    "sandboxes",
    *id_columns(),
    text_column("kind"),  # of the simulated system
    text_column("benchmark_run_id", null=True),  # null: created by hand
    integer_column("revision", default=0),  # incremented with every change of the rows
    integer_column("reset_revision", default=0),  # the revision of the last reset to the baseline
    integer_column("events", default=0),  # number of rows in the log
    integer_column("bytes", default=0),  # stored size of the baseline and the log
    json_column("steps"),  # scheduled steps: {at, step, given}, in order of time
    integer_column("steps_done", default=0),
    text_column("expires_at", null=True),
    text_column("closed_at", null=True),  # after that time nothing changes any more
    sa.Column("baseline", sa.LargeBinary, nullable=False),
    *timestamp_columns(),
    sa.Index("sandboxes_by_run", "benchmark_run_id"),
)
_index_where("sandboxes_open", sandboxes.c.closed_at.is_(None), sandboxes.c.organization_id, sandboxes.c.expires_at)

sandbox_events = make_table(
    "sandbox_events",
    text_column("sandbox_id"),
    integer_column("number"),  # counts from 1
    text_column("id"),
    integer_column("revision", null=True),  # the revision afterwards; null: no change
    boolean_column("by_itself"),  # a scenario step, or an added dataset: part of the baseline from then on
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("changes", sa.LargeBinary, nullable=True),
    text_column("created_at"),
    sa.PrimaryKeyConstraint("sandbox_id", "number"),
    sa.Index("sandbox_events_by_time", "sandbox_id", "created_at", "id"),
)


COMMON: dict[tuple[str, str], str] = {("traces", "outcome"): "pass", ("traces", "status"): "evaluated", ("results", "outcome"): "pass"}
"""Values of most rows, by table and column: indices exclude them."""


def _index_by_time(table: sa.Table, *columns: str, time: str = "created_at", where: sa.ColumnElement[bool] | None = None) -> None:
    """Add an index for rows with these columns in order of time, optionally only for rows that match `where`."""
    options: dict[str, Any] = {} if where is None else {"sqlite_where": where, "postgresql_where": where}
    sa.Index(f"{table.name}_listed_by_{'_'.join(columns)}", *(table.c[name] for name in (*columns, time, "id")), **options)


def _is_rare(table: sa.Table, name: str) -> sa.ColumnElement[bool]:
    return table.c[name] != sa.literal_column(f"'{COMMON[table.name, name]}'")


meta = make_table("meta", text_column("name", primary_key=True), text_column("value"))
"""Settings of the database itself, such as whether an organization key was ever created."""

organizations = make_table("organizations", text_column("id", primary_key=True), text_column("name"), *timestamp_columns())

projects = make_table(
    "projects",
    *id_columns("name"),
    text_column("description", null=True),
    boolean_column("paused"),
    json_column("settings"),
    *timestamp_columns(),
    integer_column("trace_days", null=True),  # days that its traces stay; null: the setting of the service
    integer_column("run_days", null=True),
    sa.Index("projects_by_organization", "organization_id", "created_at", "id"),
)

agents = make_table(
    "agents",
    *id_columns("project_id", "name"),
    text_column("kind"),  # http, n8n, flowise, otlp, custom: which parser a legacy trace body gets
    text_column("service_name", null=True),  # OTLP: routes by the resource attribute service.name
    text_column("external_ref", null=True),  # workflowId of n8n, chatflowId of Flowise: second-generation routing
    boolean_column("paused"),
    json_column("settings"),  # response_path, quiet_period_s, ...
    *timestamp_columns(),
    sa.Index("agents_by_project", "project_id", "created_at", "id"),
    sa.Index("agents_by_service", "organization_id", "service_name"),
)

cases = make_table(
    "cases",
    *id_columns("project_id"),
    text_column("agent_id", null=True),  # null: every agent of the project
    text_column("name"),
    text_column("dialect"),
    text_column("document"),  # as written; one document may contain several cases
    integer_column("version", default=1),  # incremented with every change of the document
    boolean_column("active", default=True),
    json_column("when_matches"),  # input pattern, metadata, tags
    sa.Column("sample", sa.Float, nullable=False, server_default="1"),
    *timestamp_columns(),
    sa.Index("cases_by_project", "project_id", "created_at", "id"),
    sa.Index("cases_by_agent", "agent_id", "active"),
)

case_versions = make_table(
    "case_versions",
    text_column("case_id"),
    integer_column("version"),
    text_column("dialect"),
    text_column("document"),
    text_column("created_at"),
    sa.PrimaryKeyConstraint("case_id", "version"),
)

keys = make_table(
    "keys",
    *id_columns(),
    text_column("kind"),  # organization, project, solver, run, sandbox
    text_column("name"),
    text_column("prefix"),
    text_column("suffix"),  # the last four characters, for the masked form
    text_column("hash", unique=True),  # SHA-256 of the whole key: it is random, so nothing slower is needed
    text_column("project_id", null=True),
    json_column("agent_ids"),  # for a project key: the agents it is restricted to; null: all
    text_column("solver_id", null=True),
    text_column("benchmark_run_id", null=True),
    text_column("sandbox_id", null=True),
    text_column("expires_at", null=True),
    text_column("revoked_at", null=True),
    text_column("last_used_at", null=True),
    text_column("created_at"),
    sa.Index("keys_by_organization", "organization_id", "created_at", "id"),
)

sessions = make_table(
    "sessions",
    text_column("hash", primary_key=True),  # SHA-256 of the token in the cookie
    text_column("organization_id"),
    text_column("key_id"),  # the key that opened it: the session has the key's access, and ends with it
    text_column("expires_at"),
    text_column("created_at"),
    sa.Index("sessions_by_expiry", "expires_at"),
)

audit = make_table(
    "audit",
    *id_columns("at"),
    text_column("actor"),  # the id of a key, or `local`
    text_column("action"),
    text_column("resource"),
    text_column("resource_id"),
    json_column("details"),
    sa.Index("audit_by_organization", "organization_id", "at", "id"),
)

traces = make_table(
    "traces",
    *id_columns("project_id", "agent_id"),
    text_column("external_id"),  # x-request-id, or the OTLP trace id, or generated
    text_column("format"),  # mibo, otlp
    text_column("status"),  # open (more may arrive), complete, evaluated, failed
    integer_column("revision", default=1),  # incremented with every arrival
    integer_column("size", default=0),  # stored bytes
    sa.Column("body", sa.LargeBinary, nullable=True),  # for a body in one piece; OTLP has parts
    json_column("metadata"),  # metadata of the request, for `when` and for search
    text_column("input_text", null=True),  # the start of the input, for search
    text_column("outcome", null=True),  # the worst of its results
    text_column("error", null=True),  # why it could not be evaluated: a code and a sentence
    text_column("no_run", null=True),  # why it is not an agent run, and not judged
    text_column("digest", null=True),  # JSON: the answer, duration, tokens and model, for lists
    sa.Column("due_at", sa.Float, nullable=True),  # unix seconds from which it may be evaluated; null: nothing to do
    sa.Column("leased_until", sa.Float, nullable=True),
    text_column("lease_owner", null=True),
    integer_column("attempts", default=0),  # how often its worker died
    *timestamp_columns(),
    sa.UniqueConstraint("agent_id", "external_id", name="traces_by_external_id"),
    sa.Index("traces_by_agent", "agent_id", "created_at", "id"),
    sa.Index("traces_by_project", "project_id", "created_at", "id"),
    sa.Index("traces_by_age", "created_at", "id", "size"),  # for retention, which needs nothing else
)

# Only waiting traces, which are few: the next turn, and expired leases.
_index_where("traces_waiting", traces.c.due_at.is_not(None), traces.c.agent_id, traces.c.due_at)
_index_where("traces_leased", traces.c.leased_until.is_not(None), traces.c.leased_until)

trace_parts = make_table(
    "trace_parts",
    text_column("trace_id"),
    integer_column("number"),
    sa.Column("body", sa.LargeBinary, nullable=False),
    text_column("created_at"),
    sa.PrimaryKeyConstraint("trace_id", "number"),
)

results = make_table(
    "results",
    *id_columns("project_id", "agent_id", "trace_id", "case_id"),
    integer_column("case_version"),
    text_column("case_key"),  # the id of the case inside its document
    integer_column("trace_revision"),
    text_column("outcome"),
    sa.Column("score", sa.Float, nullable=True),
    text_column("verdict", null=True),
    text_column("code", null=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
    *timestamp_columns(),
    sa.UniqueConstraint("trace_id", "case_id", "case_version", "case_key", name="results_by_trace_and_case"),
    sa.Index("results_by_agent", "agent_id", "created_at", "id"),
    sa.Index("results_by_case", "case_id", "created_at", "id"),
    sa.Index("results_by_project", "project_id", "created_at", "id"),
)

annotation_rows = make_table(
    "annotations",
    *id_columns("project_id"),
    text_column("agent_id"),  # empty for attempts of runs, which belong to no agent
    text_column("subject"),  # trace, result, attempt
    text_column("subject_id"),
    text_column("parent_id"),  # the trace or the run, with which it is deleted
    integer_column("claim", null=True),  # the index of the assertion in a result or an attempt, from 0
    text_column("label", null=True),  # pass, fail, skip; null: only a note
    text_column("note"),
    text_column("author"),  # the id of a key, or `local`
    text_column("question", null=True),  # that of the judged claim, as in `judged_claims`
    sa.Column("body", sa.LargeBinary, nullable=True),
    *timestamp_columns(),
    sa.Index("annotations_by_organization", "organization_id", "created_at", "id"),
    sa.Index("annotations_by_project", "project_id", "created_at", "id"),
    sa.Index("annotations_by_question", "project_id", "question", "author", "label"),
    sa.Index("annotations_by_subject", "subject_id", "created_at", "id"),
    sa.Index("annotations_by_parent", "parent_id"),
)

judged_claims = make_table(
    "judged_claims",
    text_column("subject_id"),  # a result of a trace, or an attempt of a run
    integer_column("claim"),  # the index of the assertion
    text_column("organization_id"),
    text_column("project_id"),
    text_column("agent_id"),  # empty for attempts of runs
    text_column("subject"),  # result, attempt
    text_column("parent_id"),  # the trace or the run, with which it is deleted
    text_column("question"),  # a hash of the question of the judge: the criterion, the answer and its context
    text_column("outcome"),
    sa.Column("score", sa.Float, nullable=False),
    sa.PrimaryKeyConstraint("subject_id", "claim"),
    # The queue is read from the index alone.
    sa.Index(
        "judged_claims_by_question",
        *("organization_id", "project_id", "question", "subject_id", "claim", "subject", "outcome", "score", "agent_id"),
    ),
    sa.Index("judged_claims_by_parent", "parent_id"),
)

claims_due = make_table(
    "claims_due",
    text_column("subject_id", primary_key=True),  # a trace or an attempt whose judged claims are to be indexed
    text_column("subject"),  # trace, attempt
    text_column("at"),  # when it was decided; one that is decided again is indexed again
)

exports = make_table(
    "exports",
    text_column("trace_id", primary_key=True),
    text_column("organization_id"),
    text_column("since"),  # results written from then on are exported
    sa.Column("queued_at", sa.Float, nullable=False),
    sa.Column("next_at", sa.Float, nullable=False),  # unix seconds of the next attempt; advanced by the server that makes it
    sa.Index("exports_due", "next_at"),
)

alert_rules = make_table(
    "alert_rules",
    *id_columns("project_id"),
    text_column("agent_id", null=True),
    text_column("name"),
    text_column("kind"),  # see `notify/alert_kinds.py`
    json_column("settings"),
    text_column("webhook_url"),  # empty: a rule that sends e-mail
    text_column("secret", null=True),  # encrypted; signs the messages
    boolean_column("active", default=True),
    text_column("state", null=True),  # firing, quiet
    *timestamp_columns(),
    text_column("channel", server_default="webhook"),  # webhook, slack, email
    text_column("email", null=True),
    sa.Index("alert_rules_by_project", "project_id", "created_at", "id"),
)

alert_deliveries = make_table(
    "alert_deliveries",
    *id_columns("rule_id"),
    json_column("payload"),
    integer_column("attempts", default=0),
    sa.Column("next_at", sa.Float, nullable=True),  # null: delivered, or given up
    text_column("delivered_at", null=True),
    text_column("error", null=True),
    *timestamp_columns(),
    sa.Index("alert_deliveries_due", "next_at"),
    sa.Index("alert_deliveries_by_rule", "rule_id", "created_at", "id"),
)

runs = make_table(
    "runs",
    *id_columns("project_id", "suite_name", "dialect"),
    text_column("document"),  # the suite as sent
    text_column("target", null=True),
    json_column("settings"),  # repeat, concurrency, timeout_s, selection, inline target
    text_column("status"),  # queued, running, completed, cancelled, failed
    text_column("outcome", null=True),
    json_column("counts"),
    text_column("error", null=True),
    text_column("note"),
    boolean_column("cancel_requested"),
    integer_column("claims", default=0),  # how often it was leased since its last finished attempt
    sa.Column("leased_until", sa.Float, nullable=True),
    text_column("lease_owner", null=True),
    text_column("started_at", null=True),
    text_column("completed_at", null=True),
    text_column("name", null=True),
    text_column("tags", null=True),  # ",nightly,release,"
    *timestamp_columns(),
    text_column("schedule_id", null=True),  # the schedule that started it
    text_column("due_at", null=True),  # the time it was due; null: started by hand
    sa.Index("runs_by_due_time", "schedule_id", "due_at", unique=True),
    sa.Index("runs_by_project", "project_id", "created_at", "id"),
    sa.Index("runs_by_organization", "organization_id", "created_at", "id"),
    sa.Index("runs_by_status", "status", "leased_until"),
    sa.Index("runs_by_age", "created_at", "id"),
)

run_entries = make_table(
    "run_entries",
    text_column("id", unique=True),  # att_...: orders the pages
    text_column("run_id"),
    text_column("case_id"),
    integer_column("attempt"),
    text_column("outcome"),
    # Before the body: SQLite reads the whole of a large value to reach the columns after it.
    sa.Column("digest", sa.LargeBinary, nullable=True),  # without long values, see `entry_digests.py`
    text_column("search_text", null=True),  # input, answer and reasons, see `entry_previews.py`
    sa.Column("shown", sa.LargeBinary, nullable=True),  # the preview of very long texts, see `entry_previews.py`
    sa.Column("body", sa.LargeBinary, nullable=False),  # a RunEntry
    text_column("created_at"),
    sa.PrimaryKeyConstraint("run_id", "case_id", "attempt"),
    sa.Index("run_entries_by_time", "run_id", "created_at", "id"),
    # With the outcome: the outcomes of cases are counted from the index alone.
    sa.Index("run_entries_by_case", "run_id", "case_id", "created_at", "id", "outcome"),
)

run_events = make_table(
    "run_events",
    text_column("run_id"),
    integer_column("number"),
    text_column("kind"),
    json_column("body"),
    text_column("at"),
    sa.PrimaryKeyConstraint("run_id", "number"),
)

schedules = make_table(
    "schedules",
    *id_columns("project_id", "name", "cron", "timezone"),
    json_column("run"),  # a `NewRun` without project and suite
    json_column("suite"),  # of the run; not read in lists
    text_column("overlap"),  # skip, queue
    boolean_column("active", default=True),
    text_column("next_at", null=True),  # due from then on; advanced by the server that starts the run; null: paused
    text_column("last_run_id", null=True),
    json_column("missed"),  # due times without a run: count, since, until, reason
    *timestamp_columns(),
    sa.Index("schedules_due", "next_at"),
    sa.Index("schedules_by_project", "project_id", "created_at", "id"),
)

proposals = make_table(
    "proposals",
    *id_columns("project_id"),
    text_column("agent_id", null=True),  # null: every agent of the project
    text_column("case_id", null=True),  # the case to change, or the accepted one; null: a new case
    integer_column("case_version", null=True),  # the version that the change was made to
    text_column("name"),
    text_column("dialect"),
    text_column("document"),
    json_column("when_matches"),
    text_column("because"),
    text_column("source"),  # traces, key
    text_column("status"),  # pending, accepted, rejected
    text_column("reason", null=True),  # of a rejection
    text_column("proposed_by"),  # a key, or local
    text_column("digest"),  # of the content, to find it when it is proposed again
    integer_column("version", default=1),  # incremented with every edit
    *timestamp_columns(),
    sa.Index("proposals_by_project", "project_id", "created_at", "id"),
    sa.Index("proposals_by_digest", "project_id", "digest"),
)

secrets = make_table(
    "secrets",
    *id_columns("project_id", "name"),
    text_column("value"),  # encrypted
    *timestamp_columns(),
    sa.UniqueConstraint("project_id", "name", name="secrets_by_name"),
)

records = make_table(
    "records",
    *id_columns(),
    text_column("kind"),  # environment, simulator, dataset, entity, benchmark, benchmark_version, task, criterion, solver, playground, ...
    text_column("parent_id", null=True),
    text_column("slug", null=True),
    json_column("body"),
    sa.Column("blob", sa.LargeBinary, nullable=True),  # large values: an uploaded state, a snapshot
    *timestamp_columns(),
    sa.UniqueConstraint("kind", "organization_id", "slug", name="records_by_slug"),
    sa.Index("records_by_kind", "organization_id", "kind", "created_at", "id"),
    sa.Index("records_by_parent", "parent_id", "kind", "created_at", "id"),
    sa.Index("records_by_age", "kind", "created_at", "id"),  # for retention, over all organizations
)

links = make_table(
    "links",
    text_column("from_id"),
    text_column("kind"),  # environment_simulator, task_entity, public_slug, ...: references that are searched by their target
    text_column("to_id"),
    text_column("created_at"),
    sa.PrimaryKeyConstraint("from_id", "kind", "to_id"),
    sa.Index("links_by_target", "to_id", "kind"),
)

# Lists: `queries.py` chooses one of them by the filters.
_index_by_time(agents, "organization_id")
for _scope in ("organization_id", "project_id", "agent_id"):
    _index_by_time(cases, _scope, "active")
    _index_by_time(traces, _scope, "outcome", where=_is_rare(traces, "outcome"))
for _scope in ("organization_id", "project_id", "agent_id", "case_id"):
    _index_by_time(results, _scope, "outcome", where=_is_rare(results, "outcome"))
    _index_by_time(results, _scope, "code", where=results.c.code.is_not(None))
_index_by_time(cases, "organization_id")
_index_by_time(cases, "agent_id")
_index_by_time(keys, "organization_id", where=keys.c.kind != sa.literal_column("'run'"))
_index_by_time(keys, "organization_id", "kind")
for _scope in ("project_id", "solver_id", "sandbox_id"):
    _index_by_time(keys, _scope, where=keys.c[_scope].is_not(None))
_index_by_time(audit, "organization_id", "resource", time="at")
_index_by_time(audit, "organization_id", "resource_id", time="at")
# Waiting and failed ones: few, over all agents.
_index_by_time(traces, "organization_id", "status", where=_is_rare(traces, "status"))
_index_by_time(traces, "organization_id")
_index_by_time(traces, "organization_id", "external_id")
_index_by_time(results, "organization_id")
_index_by_time(alert_rules, "organization_id")
_index_by_time(alert_rules, "agent_id", where=alert_rules.c.agent_id.is_not(None))
_index_by_time(runs, "organization_id", "status")
_index_by_time(runs, "project_id", "status")
_index_by_time(runs, "organization_id", "name", where=runs.c.name.is_not(None))
_index_by_time(runs, "schedule_id", where=runs.c.schedule_id.is_not(None))
_index_by_time(runs, "schedule_id", "status", where=runs.c.schedule_id.is_not(None))
_index_by_time(runs, "project_id", time="completed_at", where=runs.c.schedule_id.is_not(None))  # for alerts
_index_by_time(schedules, "organization_id")
for _scope in ("organization_id", "project_id"):
    _index_by_time(proposals, _scope, "status")
_index_by_time(proposals, "organization_id")
_index_by_time(run_entries, "run_id", "outcome")
