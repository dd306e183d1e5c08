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
        """The same text, with a replacement character where one cannot be stored."""
        if value is None or (value.isascii() and "\0" not in value):
            return value
        return value.encode("utf-8", errors="replace").decode().replace("\0", "\ufffd")


def _table(name: str, *columns: sa.schema.SchemaItem) -> sa.Table:
    return sa.Table(name, METADATA, *columns)


def _text(name: str, *, null: bool = False, **options: object) -> sa.Column[str]:
    return sa.Column(name, _Text, nullable=null, **options)  # type: ignore[arg-type]  # passed on as they are


def _json(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.JSON(none_as_null=True), nullable=True)


def _whole(name: str, *, null: bool = False, default: int | None = None) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=null, server_default=None if default is None else str(default))


def _flag(name: str, *, default: bool = False) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.true() if default else sa.false())


def _stamps() -> tuple[sa.Column[str], sa.Column[str]]:
    return _text("created_at"), _text("updated_at")


COMMON: dict[tuple[str, str], str] = {("traces", "outcome"): "pass", ("traces", "status"): "evaluated", ("results", "outcome"): "pass"}
"""Values that most rows have, by table and column: indices leave them out."""


def _by_time(table: sa.Table, *columns: str, time: str = "created_at", where: sa.ColumnElement[bool] | None = None) -> None:
    """An index that finds rows with the same values in these columns in the order of time; of some of the rows only, where it says so."""
    options: dict[str, Any] = {} if where is None else {"sqlite_where": where, "postgresql_where": where}
    sa.Index(f"{table.name}_listed_by_{'_'.join(columns)}", *(table.c[name] for name in (*columns, time, "id")), **options)


def _rare(table: sa.Table, name: str) -> sa.ColumnElement[bool]:
    return table.c[name] != sa.literal_column(f"'{COMMON[table.name, name]}'")


meta = _table("meta", _text("name", primary_key=True), _text("value"))
"""Settings of the database itself, such as whether an organization key was ever created."""

organizations = _table("organizations", _text("id", primary_key=True), _text("name"), *_stamps())

projects = _table(
    "projects",
    _text("id", primary_key=True),
    _text("organization_id"),
    _text("name"),
    _text("description", null=True),
    _flag("paused"),
    _json("settings"),
    *_stamps(),
    sa.Index("projects_by_organization", "organization_id", "created_at", "id"),
)

agents = _table(
    "agents",
    _text("id", primary_key=True),
    _text("organization_id"),
    _text("project_id"),
    _text("name"),
    _text("kind"),  # http, n8n, flowise, otlp, custom: which parser a legacy trace body gets
    _text("service_name", null=True),  # OTLP: routes by the resource attribute service.name
    _text("external_ref", null=True),  # workflowId of n8n, chatflowId of Flowise: second-generation routing
    _flag("paused"),
    _json("settings"),  # response_path, quiet_period_s, ...
    *_stamps(),
    sa.Index("agents_by_project", "project_id", "created_at", "id"),
    sa.Index("agents_by_service", "organization_id", "service_name"),
)

cases = _table(
    "cases",
    _text("id", primary_key=True),
    _text("organization_id"),
    _text("project_id"),
    _text("agent_id", null=True),  # none: every agent of the project
    _text("name"),
    _text("dialect"),
    _text("document"),  # as it was written; one document may hold several cases
    _whole("version", default=1),  # counts up with every change of the document
    _flag("active", default=True),
    _json("when_matches"),  # input pattern, metadata, tags
    sa.Column("sample", sa.Float, nullable=False, server_default="1"),
    *_stamps(),
    sa.Index("cases_by_project", "project_id", "created_at", "id"),
    sa.Index("cases_by_agent", "agent_id", "active"),
)

case_versions = _table(
    "case_versions",
    _text("case_id"),
    _whole("version"),
    _text("dialect"),
    _text("document"),
    _text("created_at"),
    sa.PrimaryKeyConstraint("case_id", "version"),
)

keys = _table(
    "keys",
    _text("id", primary_key=True),
    _text("organization_id"),
    _text("kind"),  # organization, project, solver, run
    _text("name"),
    _text("prefix"),
    _text("suffix"),  # the last four characters, for the masked form
    _text("hash", unique=True),  # SHA-256 of the whole key: it is random, so nothing slower is needed
    _text("project_id", null=True),
    _json("agent_ids"),  # of a project key: the agents it is restricted to; none: all
    _text("solver_id", null=True),
    _text("benchmark_run_id", null=True),
    _text("expires_at", null=True),
    _text("revoked_at", null=True),
    _text("last_used_at", null=True),
    _text("created_at"),
    sa.Index("keys_by_organization", "organization_id", "created_at", "id"),
)

audit = _table(
    "audit",
    _text("id", primary_key=True),
    _text("organization_id"),
    _text("at"),
    _text("actor"),  # the id of a key, or `local`
    _text("action"),
    _text("resource"),
    _text("resource_id"),
    _json("details"),
    sa.Index("audit_by_organization", "organization_id", "at", "id"),
)

traces = _table(
    "traces",
    _text("id", primary_key=True),
    _text("organization_id"),
    _text("project_id"),
    _text("agent_id"),
    _text("external_id"),  # x-request-id, or the OTLP trace id, or made up
    _text("format"),  # mibo, otlp
    _text("status"),  # open (more may come), complete, evaluated, failed
    _whole("revision", default=1),  # counts up with every change of what was received
    _whole("size", default=0),  # bytes as kept
    sa.Column("body", sa.LargeBinary, nullable=True),  # of a body in one piece; OTLP comes in parts
    _json("metadata"),  # what was sent beside it, for `when` and for search
    _text("input_text", null=True),  # the start of what was asked, for search
    _text("outcome", null=True),  # the worst of its results
    _text("error", null=True),  # why it could not be evaluated: a code and a sentence
    _text("no_run", null=True),  # why it is no run of an agent, and not judged
    sa.Column("due_at", sa.Float, nullable=True),  # unix seconds from which it may be evaluated; none: nothing to do
    sa.Column("leased_until", sa.Float, nullable=True),
    _text("lease_owner", null=True),
    _whole("attempts", default=0),  # how often whoever worked on it was gone before the end
    *_stamps(),
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

trace_parts = _table(
    "trace_parts",
    _text("trace_id"),
    _whole("number"),
    sa.Column("body", sa.LargeBinary, nullable=False),
    _text("created_at"),
    sa.PrimaryKeyConstraint("trace_id", "number"),
)

results = _table(
    "results",
    _text("id", primary_key=True),
    _text("organization_id"),
    _text("project_id"),
    _text("agent_id"),
    _text("trace_id"),
    _text("case_id"),
    _whole("case_version"),
    _text("case_key"),  # the id of the case inside its document
    _whole("trace_revision"),
    _text("outcome"),
    sa.Column("score", sa.Float, nullable=True),
    _text("verdict", null=True),
    _text("code", null=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
    *_stamps(),
    sa.UniqueConstraint("trace_id", "case_id", "case_version", "case_key", name="results_by_trace_and_case"),
    sa.Index("results_by_agent", "agent_id", "created_at", "id"),
    sa.Index("results_by_case", "case_id", "created_at", "id"),
    sa.Index("results_by_project", "project_id", "created_at", "id"),
)

exports = _table(
    "exports",
    _text("trace_id", primary_key=True),
    _text("organization_id"),
    _text("since"),  # results that were written from then on are to be exported
    sa.Column("queued_at", sa.Float, nullable=False),
    sa.Column("next_at", sa.Float, nullable=False),  # unix seconds of the next attempt; moved on by whoever makes it
    sa.Index("exports_due", "next_at"),
)

alert_rules = _table(
    "alert_rules",
    _text("id", primary_key=True),
    _text("organization_id"),
    _text("project_id"),
    _text("agent_id", null=True),
    _text("name"),
    _text("kind"),  # pass_rate, failing_case, missing_evidence
    _json("settings"),
    _text("webhook_url"),
    _text("secret", null=True),  # encrypted: signs what is sent
    _flag("active", default=True),
    _text("state", null=True),  # firing, quiet
    *_stamps(),
    sa.Index("alert_rules_by_project", "project_id", "created_at", "id"),
)

alert_deliveries = _table(
    "alert_deliveries",
    _text("id", primary_key=True),
    _text("organization_id"),
    _text("rule_id"),
    _json("payload"),
    _whole("attempts", default=0),
    sa.Column("next_at", sa.Float, nullable=True),  # none: delivered, or given up
    _text("delivered_at", null=True),
    _text("error", null=True),
    *_stamps(),
    sa.Index("alert_deliveries_due", "next_at"),
    sa.Index("alert_deliveries_by_rule", "rule_id", "created_at", "id"),
)

runs = _table(
    "runs",
    _text("id", primary_key=True),
    _text("organization_id"),
    _text("project_id"),
    _text("suite_name"),
    _text("dialect"),
    _text("document"),  # the suite as it was sent
    _text("target", null=True),
    _json("settings"),  # repeat, concurrency, timeout_s, selection, inline target
    _text("status"),  # queued, running, completed, cancelled, failed
    _text("outcome", null=True),
    _json("counts"),
    _text("error", null=True),
    _text("note"),
    _flag("cancel_requested"),
    _whole("claims", default=0),  # how often it was taken up since its last finished attempt
    sa.Column("leased_until", sa.Float, nullable=True),
    _text("lease_owner", null=True),
    _text("started_at", null=True),
    _text("completed_at", null=True),
    *_stamps(),
    sa.Index("runs_by_project", "project_id", "created_at", "id"),
    sa.Index("runs_by_organization", "organization_id", "created_at", "id"),
    sa.Index("runs_by_status", "status", "leased_until"),
    sa.Index("runs_by_age", "created_at", "id"),
)

run_entries = _table(
    "run_entries",
    _text("id", unique=True),  # att_...: what pages go by
    _text("run_id"),
    _text("case_id"),
    _whole("attempt"),
    _text("outcome"),
    sa.Column("body", sa.LargeBinary, nullable=False),  # a RunEntry
    _text("created_at"),
    sa.PrimaryKeyConstraint("run_id", "case_id", "attempt"),
    sa.Index("run_entries_by_time", "run_id", "created_at", "id"),
)

run_events = _table(
    "run_events",
    _text("run_id"),
    _whole("number"),
    _text("kind"),
    _json("body"),
    _text("at"),
    sa.PrimaryKeyConstraint("run_id", "number"),
)

secrets = _table(
    "secrets",
    _text("id", primary_key=True),
    _text("organization_id"),
    _text("project_id"),
    _text("name"),
    _text("value"),  # encrypted
    *_stamps(),
    sa.UniqueConstraint("project_id", "name", name="secrets_by_name"),
)

records = _table(
    "records",
    _text("id", primary_key=True),
    _text("organization_id"),
    _text("kind"),  # environment, simulator, dataset, entity, benchmark, benchmark_version, task, criterion, solver, playground, ...
    _text("parent_id", null=True),
    _text("slug", null=True),
    _json("body"),
    sa.Column("blob", sa.LargeBinary, nullable=True),  # what is large: an uploaded state, a snapshot
    *_stamps(),
    sa.UniqueConstraint("kind", "organization_id", "slug", name="records_by_slug"),
    sa.Index("records_by_kind", "organization_id", "kind", "created_at", "id"),
    sa.Index("records_by_parent", "parent_id", "kind", "created_at", "id"),
    sa.Index("records_by_age", "kind", "created_at", "id"),  # for retention, over all organizations
)

links = _table(
    "links",
    _text("from_id"),
    _text("kind"),  # environment_simulator, task_entity, public_slug, ...: whatever has to be found from its other end
    _text("to_id"),
    _text("created_at"),
    sa.PrimaryKeyConstraint("from_id", "kind", "to_id"),
    sa.Index("links_by_target", "to_id", "kind"),
)

# Lists: `list_queries.py` says which is taken for which filters.
_by_time(agents, "organization_id")
for _scope in ("organization_id", "project_id", "agent_id"):
    _by_time(cases, _scope, "active")
    _by_time(traces, _scope, "outcome", where=_rare(traces, "outcome"))
for _scope in ("organization_id", "project_id", "agent_id", "case_id"):
    _by_time(results, _scope, "outcome", where=_rare(results, "outcome"))
    _by_time(results, _scope, "code", where=results.c.code.is_not(None))
_by_time(cases, "organization_id")
_by_time(cases, "agent_id")
_by_time(keys, "organization_id", where=keys.c.kind != sa.literal_column("'run'"))
_by_time(keys, "organization_id", "kind")
_by_time(keys, "project_id", where=keys.c.project_id.is_not(None))
_by_time(keys, "solver_id", where=keys.c.solver_id.is_not(None))
_by_time(audit, "organization_id", "resource", time="at")
_by_time(audit, "organization_id", "resource_id", time="at")
_by_time(traces, "organization_id", "status", where=_rare(traces, "status"))  # those that wait, and failed ones: few, of all agents
_by_time(traces, "organization_id")
_by_time(traces, "organization_id", "external_id")
_by_time(results, "organization_id")
_by_time(alert_rules, "organization_id")
_by_time(alert_rules, "agent_id", where=alert_rules.c.agent_id.is_not(None))
_by_time(runs, "organization_id", "status")
_by_time(runs, "project_id", "status")
_by_time(run_entries, "run_id", "outcome")
_by_time(run_entries, "run_id", "case_id")
