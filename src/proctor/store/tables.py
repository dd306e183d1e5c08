"""The tables of the service, for SQLite and PostgreSQL alike.

Times are ISO 8601 text in UTC with milliseconds: they sort as they are and read the same in both databases. Ids are text with a prefix
that says what they name. Everything that belongs to somebody carries `organization_id`, and no query goes without it. Bodies (evidence,
results, kept documents) are compressed JSON: they are read whole or not at all.

The resources of the verification API (environments, tasks, criteria, runs of them) are plain records with a parent; what they mean is
decided one floor up.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

METADATA = sa.MetaData()


class _Text(sa.TypeDecorator[str]):
    """Text that both databases can hold: PostgreSQL knows no NUL character, and no encoding knows half of a surrogate pair."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """Return the same text, with a replacement character where one cannot be stored."""
        if value is None or (value.isascii() and "\0" not in value):
            return value
        return value.encode("utf-8", errors="replace").decode().replace("\0", "\ufffd")


def _make_table(name: str, *columns: sa.schema.SchemaItem) -> sa.Table:
    return sa.Table(name, METADATA, *columns)


def _text_column(name: str, *, null: bool = False, **options: object) -> sa.Column[str]:
    return sa.Column(name, _Text, nullable=null, **options)  # type: ignore[arg-type]  # passed on as they are


def _json_column(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.JSON(none_as_null=True), nullable=True)


def _integer_column(name: str, *, null: bool = False, default: int | None = None) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=null, server_default=None if default is None else str(default))


def _boolean_column(name: str, *, default: bool = False) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.true() if default else sa.false())


def _timestamp_columns() -> tuple[sa.Column[str], sa.Column[str]]:
    return _text_column("created_at"), _text_column("updated_at")


COMMON: dict[tuple[str, str], str] = {("traces", "outcome"): "pass", ("traces", "status"): "evaluated", ("results", "outcome"): "pass"}
"""Values that most rows have, by table and column: indices leave them out."""


def _index_by_time(table: sa.Table, *columns: str, time: str = "created_at", where: sa.ColumnElement[bool] | None = None) -> None:
    """Add an index that finds rows with these values in the order of time; of some of the rows only, where `where` says so."""
    options: dict[str, Any] = {} if where is None else {"sqlite_where": where, "postgresql_where": where}
    sa.Index(f"{table.name}_listed_by_{'_'.join(columns)}", *(table.c[name] for name in (*columns, time, "id")), **options)


def _is_rare(table: sa.Table, name: str) -> sa.ColumnElement[bool]:
    return table.c[name] != sa.literal_column(f"'{COMMON[table.name, name]}'")


meta = _make_table("meta", _text_column("name", primary_key=True), _text_column("value"))
"""Settings of the database itself, such as whether an organization key was ever created."""

organizations = _make_table("organizations", _text_column("id", primary_key=True), _text_column("name"), *_timestamp_columns())

projects = _make_table(
    "projects",
    _text_column("id", primary_key=True),
    _text_column("organization_id"),
    _text_column("name"),
    _text_column("description", null=True),
    _boolean_column("paused"),
    _json_column("settings"),
    *_timestamp_columns(),
    sa.Index("projects_by_organization", "organization_id", "created_at", "id"),
)

agents = _make_table(
    "agents",
    _text_column("id", primary_key=True),
    _text_column("organization_id"),
    _text_column("project_id"),
    _text_column("name"),
    _text_column("kind"),  # http, n8n, flowise, otlp, custom: which parser a legacy trace body gets
    _text_column("service_name", null=True),  # OTLP: routes by the resource attribute service.name
    _text_column("external_ref", null=True),  # workflowId of n8n, chatflowId of Flowise: second-generation routing
    _boolean_column("paused"),
    _json_column("settings"),  # response_path, quiet_period_s, ...
    *_timestamp_columns(),
    sa.Index("agents_by_project", "project_id", "created_at", "id"),
    sa.Index("agents_by_service", "organization_id", "service_name"),
)

cases = _make_table(
    "cases",
    _text_column("id", primary_key=True),
    _text_column("organization_id"),
    _text_column("project_id"),
    _text_column("agent_id", null=True),  # none: every agent of the project
    _text_column("name"),
    _text_column("dialect"),
    _text_column("document"),  # as it was written; one document may hold several cases
    _integer_column("version", default=1),  # counts up with every change of the document
    _boolean_column("active", default=True),
    _json_column("when_matches"),  # input pattern, metadata, tags
    sa.Column("sample", sa.Float, nullable=False, server_default="1"),
    *_timestamp_columns(),
    sa.Index("cases_by_project", "project_id", "created_at", "id"),
    sa.Index("cases_by_agent", "agent_id", "active"),
)

case_versions = _make_table(
    "case_versions",
    _text_column("case_id"),
    _integer_column("version"),
    _text_column("dialect"),
    _text_column("document"),
    _text_column("created_at"),
    sa.PrimaryKeyConstraint("case_id", "version"),
)

keys = _make_table(
    "keys",
    _text_column("id", primary_key=True),
    _text_column("organization_id"),
    _text_column("kind"),  # organization, project, solver, run
    _text_column("name"),
    _text_column("prefix"),
    _text_column("suffix"),  # the last four characters, for the masked form
    _text_column("hash", unique=True),  # SHA-256 of the whole key: it is random, so nothing slower is needed
    _text_column("project_id", null=True),
    _json_column("agent_ids"),  # of a project key: the agents it is restricted to; none: all
    _text_column("solver_id", null=True),
    _text_column("benchmark_run_id", null=True),
    _text_column("expires_at", null=True),
    _text_column("revoked_at", null=True),
    _text_column("last_used_at", null=True),
    _text_column("created_at"),
    sa.Index("keys_by_organization", "organization_id", "created_at", "id"),
)

audit = _make_table(
    "audit",
    _text_column("id", primary_key=True),
    _text_column("organization_id"),
    _text_column("at"),
    _text_column("actor"),  # the id of a key, or `local`
    _text_column("action"),
    _text_column("resource"),
    _text_column("resource_id"),
    _json_column("details"),
    sa.Index("audit_by_organization", "organization_id", "at", "id"),
)

traces = _make_table(
    "traces",
    _text_column("id", primary_key=True),
    _text_column("organization_id"),
    _text_column("project_id"),
    _text_column("agent_id"),
    _text_column("external_id"),  # x-request-id, or the OTLP trace id, or made up
    _text_column("format"),  # mibo, otlp
    _text_column("status"),  # open (more may come), complete, evaluated, failed
    _integer_column("revision", default=1),  # counts up with every change of what was received
    _integer_column("size", default=0),  # bytes as kept
    sa.Column("body", sa.LargeBinary, nullable=True),  # of a body in one piece; OTLP comes in parts
    _json_column("metadata"),  # what was sent beside it, for `when` and for search
    _text_column("input_text", null=True),  # the start of what was asked, for search
    _text_column("outcome", null=True),  # the worst of its results
    _text_column("error", null=True),  # why it could not be evaluated: a code and a sentence
    _text_column("no_run", null=True),  # why it is no run of an agent, and not judged
    sa.Column("due_at", sa.Float, nullable=True),  # unix seconds from which it may be evaluated; none: nothing to do
    sa.Column("leased_until", sa.Float, nullable=True),
    _text_column("lease_owner", null=True),
    _integer_column("attempts", default=0),  # how often whoever worked on it was gone before the end
    *_timestamp_columns(),
    sa.UniqueConstraint("agent_id", "external_id", name="traces_by_external_id"),
    sa.Index("traces_by_agent", "agent_id", "created_at", "id"),
    sa.Index("traces_by_project", "project_id", "created_at", "id"),
    sa.Index("traces_by_age", "created_at", "id", "size"),  # for retention, which needs nothing else
)

# Of those that wait only, which are few: whose turn it is, and what was left behind by somebody who is gone.
sa.Index(
    "traces_waiting",
    traces.c.agent_id,
    traces.c.due_at,
    sqlite_where=traces.c.due_at.is_not(None),
    postgresql_where=traces.c.due_at.is_not(None),
)
sa.Index(
    "traces_leased",
    traces.c.leased_until,
    sqlite_where=traces.c.leased_until.is_not(None),
    postgresql_where=traces.c.leased_until.is_not(None),
)

trace_parts = _make_table(
    "trace_parts",
    _text_column("trace_id"),
    _integer_column("number"),
    sa.Column("body", sa.LargeBinary, nullable=False),
    _text_column("created_at"),
    sa.PrimaryKeyConstraint("trace_id", "number"),
)

results = _make_table(
    "results",
    _text_column("id", primary_key=True),
    _text_column("organization_id"),
    _text_column("project_id"),
    _text_column("agent_id"),
    _text_column("trace_id"),
    _text_column("case_id"),
    _integer_column("case_version"),
    _text_column("case_key"),  # the id of the case inside its document
    _integer_column("trace_revision"),
    _text_column("outcome"),
    sa.Column("score", sa.Float, nullable=True),
    _text_column("verdict", null=True),
    _text_column("code", null=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
    *_timestamp_columns(),
    sa.UniqueConstraint("trace_id", "case_id", "case_version", "case_key", name="results_by_trace_and_case"),
    sa.Index("results_by_agent", "agent_id", "created_at", "id"),
    sa.Index("results_by_case", "case_id", "created_at", "id"),
    sa.Index("results_by_project", "project_id", "created_at", "id"),
)

exports = _make_table(
    "exports",
    _text_column("trace_id", primary_key=True),
    _text_column("organization_id"),
    _text_column("since"),  # results that were written from then on are to be exported
    sa.Column("queued_at", sa.Float, nullable=False),
    sa.Column("next_at", sa.Float, nullable=False),  # unix seconds of the next attempt; moved on by whoever makes it
    sa.Index("exports_due", "next_at"),
)

alert_rules = _make_table(
    "alert_rules",
    _text_column("id", primary_key=True),
    _text_column("organization_id"),
    _text_column("project_id"),
    _text_column("agent_id", null=True),
    _text_column("name"),
    _text_column("kind"),  # pass_rate, failing_case, missing_evidence
    _json_column("settings"),
    _text_column("webhook_url"),
    _text_column("secret", null=True),  # encrypted: signs what is sent
    _boolean_column("active", default=True),
    _text_column("state", null=True),  # firing, quiet
    *_timestamp_columns(),
    sa.Index("alert_rules_by_project", "project_id", "created_at", "id"),
)

alert_deliveries = _make_table(
    "alert_deliveries",
    _text_column("id", primary_key=True),
    _text_column("organization_id"),
    _text_column("rule_id"),
    _json_column("payload"),
    _integer_column("attempts", default=0),
    sa.Column("next_at", sa.Float, nullable=True),  # none: delivered, or given up
    _text_column("delivered_at", null=True),
    _text_column("error", null=True),
    *_timestamp_columns(),
    sa.Index("alert_deliveries_due", "next_at"),
    sa.Index("alert_deliveries_by_rule", "rule_id", "created_at", "id"),
)

runs = _make_table(
    "runs",
    _text_column("id", primary_key=True),
    _text_column("organization_id"),
    _text_column("project_id"),
    _text_column("suite_name"),
    _text_column("dialect"),
    _text_column("document"),  # the suite as it was sent
    _text_column("target", null=True),
    _json_column("settings"),  # repeat, concurrency, timeout_s, selection, inline target
    _text_column("status"),  # queued, running, completed, cancelled, failed
    _text_column("outcome", null=True),
    _json_column("counts"),
    _text_column("error", null=True),
    _text_column("note"),
    _boolean_column("cancel_requested"),
    _integer_column("claims", default=0),  # how often it was taken up since its last finished attempt
    sa.Column("leased_until", sa.Float, nullable=True),
    _text_column("lease_owner", null=True),
    _text_column("started_at", null=True),
    _text_column("completed_at", null=True),
    *_timestamp_columns(),
    sa.Index("runs_by_project", "project_id", "created_at", "id"),
    sa.Index("runs_by_organization", "organization_id", "created_at", "id"),
    sa.Index("runs_by_status", "status", "leased_until"),
    sa.Index("runs_by_age", "created_at", "id"),
)

run_entries = _make_table(
    "run_entries",
    _text_column("id", unique=True),  # att_...: what pages go by
    _text_column("run_id"),
    _text_column("case_id"),
    _integer_column("attempt"),
    _text_column("outcome"),
    sa.Column("body", sa.LargeBinary, nullable=False),  # a RunEntry
    _text_column("created_at"),
    sa.PrimaryKeyConstraint("run_id", "case_id", "attempt"),
    sa.Index("run_entries_by_time", "run_id", "created_at", "id"),
)

run_events = _make_table(
    "run_events",
    _text_column("run_id"),
    _integer_column("number"),
    _text_column("kind"),
    _json_column("body"),
    _text_column("at"),
    sa.PrimaryKeyConstraint("run_id", "number"),
)

secrets = _make_table(
    "secrets",
    _text_column("id", primary_key=True),
    _text_column("organization_id"),
    _text_column("project_id"),
    _text_column("name"),
    _text_column("value"),  # encrypted
    *_timestamp_columns(),
    sa.UniqueConstraint("project_id", "name", name="secrets_by_name"),
)

records = _make_table(
    "records",
    _text_column("id", primary_key=True),
    _text_column("organization_id"),
    _text_column("kind"),  # environment, simulator, dataset, entity, benchmark, benchmark_version, task, criterion, solver, playground, ...
    _text_column("parent_id", null=True),
    _text_column("slug", null=True),
    _json_column("body"),
    sa.Column("blob", sa.LargeBinary, nullable=True),  # what is large: an uploaded state, a snapshot
    *_timestamp_columns(),
    sa.UniqueConstraint("kind", "organization_id", "slug", name="records_by_slug"),
    sa.Index("records_by_kind", "organization_id", "kind", "created_at", "id"),
    sa.Index("records_by_parent", "parent_id", "kind", "created_at", "id"),
    sa.Index("records_by_age", "kind", "created_at", "id"),  # for retention, over all organizations
)

links = _make_table(
    "links",
    _text_column("from_id"),
    _text_column("kind"),  # environment_simulator, task_entity, public_slug, ...: whatever has to be found from its other end
    _text_column("to_id"),
    _text_column("created_at"),
    sa.PrimaryKeyConstraint("from_id", "kind", "to_id"),
    sa.Index("links_by_target", "to_id", "kind"),
)

# Lists: `list_queries.py` says which is taken for which filters.
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
_index_by_time(keys, "project_id", where=keys.c.project_id.is_not(None))
_index_by_time(keys, "solver_id", where=keys.c.solver_id.is_not(None))
_index_by_time(audit, "organization_id", "resource", time="at")
_index_by_time(audit, "organization_id", "resource_id", time="at")
_index_by_time(
    traces, "organization_id", "status", where=_is_rare(traces, "status")
)  # those that wait, and failed ones: few, of all agents
_index_by_time(traces, "organization_id")
_index_by_time(traces, "organization_id", "external_id")
_index_by_time(results, "organization_id")
_index_by_time(alert_rules, "organization_id")
_index_by_time(alert_rules, "agent_id", where=alert_rules.c.agent_id.is_not(None))
_index_by_time(runs, "organization_id", "status")
_index_by_time(runs, "project_id", "status")
_index_by_time(run_entries, "run_id", "outcome")
_index_by_time(run_entries, "run_id", "case_id")
