"""Alert rules of a project: state, messages, forms, and a preview of when a rule would have fired."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from proctor.model.evidence import Json
from proctor.pages.desk import find_in_project, get_caller, get_hub
from proctor.pages.form_page import Form, Question, ask_first, belongs_in_form, refuse_if_changed, show_form
from proctor.pages.forms import read_form
from proctor.pages.inputs import read_inputs, write_record
from proctor.pages.pictures import draw_preview
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.words import ALERT_NAMES, find_project_address, quote_part
from proctor.report.words.wording import count_noun
from proctor.service.access.agents import list_agents
from proctor.service.access.permissions import require_writer
from proctor.service.notify import alerts
from proctor.service.notify.alerts import DEFAULTS, LONGEST_URL, AlertKind, RuleDraft, RuleSpec, preview_rule
from proctor.service.refusals import Refusal
from proctor.service.traces.cases import list_cases
from proctor.service.verification.shared.fields import FLAG, NAME, Field, Table, id_of, number, text, whole

KINDS: tuple[AlertKind, ...] = ("pass_rate", "failing_case", "missing_evidence")
_SETTINGS: Table = {
    "below": Field(number(above=-1, most=1), "fires when the pass rate is below this, 0 to 1"),
    "above": Field(number(above=-1, most=1), "fires when the share of results with missing evidence is above this, 0 to 1"),
    "case_id": Field(id_of("case"), "limit the rule to one case"),
    "times": Field(whole(most=1_000_000), "fires after this many failed results"),
    "window_s": Field(number(most=alerts.LONGEST_WINDOW_S), "length of the time window"),
    "minimum": Field(whole(most=1_000_000), "minimum sample size"),
}
_AGENT: Table = {"agent_id": Field(id_of("agent"), "limit the rule to one agent")}
_SENDING: Table = {
    "webhook_url": Field(text(LONGEST_URL), "receives a message when the rule starts and stops firing", required=True, null=False),
    "secret": Field(text(500), "signs the messages; at least 16 characters"),
    "active": Field(FLAG, "whether the rule is evaluated"),
}
FIELDS: Table = {"name": NAME, **_AGENT, **_SETTINGS, **_SENDING}
"""Fields of all kinds of rules."""
_ABOUT = {
    "pass_rate": "Fires when the pass rate in the window is below the threshold.",
    "failing_case": "Fires when a case fails this often in the window.",
    "missing_evidence": "Fires when the share of results with missing evidence in the window is above the threshold.",
}
"""A description of each kind of rule."""
_DAYS = "7"


async def show_alerts(request: Request, source: Source) -> Response:
    """Show the rules of a project."""
    project = await source.get_project(request.path_params["project"])
    page = await alerts.list_rules(
        get_hub(request), get_caller(request), project_id=project["id"], limit=50, cursor=request.query_params.get("cursor")
    )
    return render_page(request, "alerts.html", {"source": source, "project": project, "page": page, "kinds": KINDS})


async def show_alert(request: Request, source: Source) -> Response:
    """Show one rule with a preview and its messages."""
    project, rule = await _find_rule(request, source)
    hub, caller = get_hub(request), get_caller(request)
    deliveries = await alerts.list_deliveries(hub, caller, rule["id"], limit=20, cursor=request.query_params.get("cursor"))
    days = _read_days(request.query_params.get("days", _DAYS))
    draft = RuleDraft(project_id=project["id"], agent_id=rule["agent_id"], kind=rule["kind"], settings=rule["settings"], days=days)
    try:
        preview = _make_preview(await preview_rule(hub, caller, draft))
    except Refusal as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        preview = None  # its case or agent was deleted
    values = {"source": source, "project": project, "rule": rule, "page": deliveries, "preview": preview, "days": f"{days:g}"}
    return render_page(request, "alert.html", values)


async def show_new_alert(request: Request, source: Source) -> Response:
    """Show the form of a new rule of a kind."""
    require_writer(get_caller(request), "alerts can be created")
    project = await source.get_project(request.path_params["project"])
    kind = _find_kind(request.query_params.get("kind", ""))
    form = await _make_form(request, project, kind)
    start = {**write_record(form.fields, {name: field.default for name, field in form.fields.items()}), **_write_defaults(kind)}
    return show_form(request, source, form, {**start, "active": "on"})


async def create_alert(request: Request, source: Source) -> Response:
    """Save a rule, or only preview it."""
    sent = await read_form(request)
    require_writer(get_caller(request), "alerts can be created")
    project = await source.get_project(request.path_params["project"])
    kind = _find_kind(request.query_params.get("kind", ""))
    form = await _make_form(request, project, kind)
    try:
        given = read_inputs(form.fields, sent)
        if sent.get("only") == "preview":
            return await _show_preview(request, source, form, sent, given, project, kind)
        made = await alerts.create_rule(get_hub(request), get_caller(request), _make_spec(given, project, kind))
    except Refusal as refusal:
        if not (belongs_in_form(refusal) or refusal.code == "NOT_FOUND"):
            raise
        return show_form(request, source, form, sent, _move_problems(refusal))
    back = _find_address(project, str(made["id"]))
    return render_page(
        request, "once.html", {"source": source, "project": project, "shown": made["secret"], "back": back, "name": made["name"]}
    )


async def show_change(request: Request, source: Source) -> Response:
    """Show the form of a rule."""
    project, rule = await _find_rule(request, source)
    form = await _make_form(request, project, rule["kind"], rule)
    return show_form(request, source, form, _write_rule(form.fields, rule))


async def change_alert(request: Request, source: Source) -> Response:
    """Save changes to a rule, or only preview them."""
    sent = await read_form(request)
    project, rule = await _find_rule(request, source)
    form = await _make_form(request, project, rule["kind"], rule, seen=sent.get("seen", ""))
    try:
        if sent.get("only") == "preview":
            return await _show_preview(request, source, form, sent, read_inputs(form.fields, sent), project, rule["kind"], rule["agent_id"])
        refuse_if_changed(sent, rule["updated_at"])
        given = read_inputs(form.fields, sent, before=_write_rule(form.fields, rule))
        if given:
            await alerts.update_rule(get_hub(request), get_caller(request), rule["id"], _gather_settings(given))
    except Refusal as refusal:
        if not (belongs_in_form(refusal) or refusal.code == "NOT_FOUND"):
            raise
        return show_form(request, source, form, sent, _move_problems(refusal))
    return redirect(_find_address(project, rule["id"]))


async def switch_alert(request: Request, source: Source) -> Response:
    """Enable or disable a rule."""
    await read_form(request)
    project, rule = await _find_rule(request, source)
    await alerts.update_rule(get_hub(request), get_caller(request), rule["id"], {"active": not rule["active"]})
    return redirect(_find_address(project, rule["id"]))


async def test_alert(request: Request, source: Source) -> Response:
    """Send a test message."""
    await read_form(request)
    project, rule = await _find_rule(request, source)
    await alerts.send_test(get_hub(request), get_caller(request), rule["id"])
    return redirect(f"{_find_address(project, rule['id'])}#sent")


async def ask_delete(request: Request, source: Source) -> Response:
    """Confirm the deletion of a rule."""
    project, rule = await _find_rule(request, source)
    here = _find_address(project, rule["id"])
    question = Question(
        title=f"Delete {rule['name']}?",
        about="Its messages are deleted too.",
        action=f"{here}/delete",
        button="Delete",
        back=here,
        crumbs=_list_ways(project),
        project=project,
    )
    return ask_first(request, source, question)


async def delete_alert(request: Request, source: Source) -> Response:
    """Delete a rule and its messages."""
    await read_form(request)
    project, rule = await _find_rule(request, source)
    await alerts.delete_rule(get_hub(request), get_caller(request), rule["id"])
    return redirect(_find_address(project))


# --- forms ------------------------------------------------------------------------------------------------------------


async def _make_form(request: Request, project: Record, kind: AlertKind, rule: Record | None = None, seen: str = "") -> Form:
    hub, caller = get_hub(request), get_caller(request)
    agents = (await list_agents(hub, caller, project_id=project["id"], limit=100))["data"]
    cases = (await list_cases(hub, caller, project_id=project["id"], limit=100))["data"]
    own: dict[str, Field] = {"name": NAME}
    if rule is None:
        own |= _AGENT
    own |= {name: _SETTINGS[name] for name in _SETTINGS if name in DEFAULTS[kind]}
    own |= _SENDING
    here = _find_address(project)
    title = f"Edit {rule['name']}" if rule else ALERT_NAMES[kind]
    return Form(
        title=title,
        about=_ABOUT[kind],
        action=f"{here}/{quote_part(rule['id'])}/change" if rule else f"{here}/new?kind={kind}",
        button="Save",
        back=f"{here}/{quote_part(rule['id'])}" if rule else here,
        fields=own,
        choices={"agent_id": [(one["id"], one["name"]) for one in agents], "case_id": [(one["id"], one["name"]) for one in cases]},
        partial=rule is not None,
        seen=seen or ("" if rule is None else rule["updated_at"]),
        updated_at="" if rule is None else rule["updated_at"],
        crumbs=_list_ways(project),
        project=project,
        extra="preview.html",
        values={"preview": None},
    )


async def _show_preview(
    request: Request,
    source: Source,
    form: Form,
    sent: Mapping[str, str],
    given: Mapping[str, Json],
    project: Record,
    kind: AlertKind,
    agent_id: str | None = None,
) -> Response:
    settings = {name: value for name, value in given.items() if name in DEFAULTS[kind]}
    draft = RuleDraft(project_id=project["id"], agent_id=given.get("agent_id", agent_id), kind=kind, settings=settings, days=7)
    found = _make_preview(await preview_rule(get_hub(request), get_caller(request), draft))
    return show_form(request, source, msgspec.structs.replace(form, values={"preview": found}), sent)


def _make_spec(given: Mapping[str, Json], project: Record, kind: AlertKind) -> RuleSpec:
    missing = [name for name in ("name", "webhook_url") if not given.get(name)]
    if missing:
        raise Refusal("VALIDATION_ERROR", "the rule is incomplete", fields={name: ["required"] for name in missing})
    whole = _gather_settings(given)
    return RuleSpec(project_id=project["id"], kind=kind, **{name: one for name, one in whole.items() if one is not None})


def _gather_settings(given: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of a rule with those of its kind under `settings`, as in REST."""
    settings = {name: value for name, value in given.items() if name in _SETTINGS}
    # The secret is never shown again; an empty input does not delete it.
    rest = {name: value for name, value in given.items() if name not in _SETTINGS and not (name == "secret" and value is None)}
    return {**rest, "settings": settings} if settings else rest


def _move_problems(refusal: Refusal) -> Refusal:
    """Return the refusal with problems of `settings.below` at the input `below`."""
    fields = {name.removeprefix("settings."): texts for name, texts in refusal.fields.items()}
    return Refusal(refusal.code, refusal.message, fields=fields, hint=refusal.hint)


def _write_rule(fields: Table, rule: Record) -> dict[str, str]:
    return write_record(fields, {**rule, **(rule["settings"] or {}), "secret": None})


def _write_defaults(kind: AlertKind) -> dict[str, str]:
    return write_record({name: _SETTINGS[name] for name in DEFAULTS[kind]}, DEFAULTS[kind])


# --- what is shown ----------------------------------------------------------------------------------------------------


def _make_preview(found: Record) -> Record:
    """Return a preview with its chart and summary."""
    begin, end = (datetime.fromisoformat(found[name]).timestamp() for name in ("since", "until"))
    length = max(1.0, end - begin)

    def share(at: str | None) -> float:
        return 1.0 if at is None else (datetime.fromisoformat(at).timestamp() - begin) / length

    points = [(share(one["at"]), one["value"]) for one in found["points"]]
    limit = float(found["settings"][{"pass_rate": "below", "missing_evidence": "above", "failing_case": "times"}[found["kind"]]])
    most = max((value for _, value in points if value is not None), default=0.0)
    title = f"It would have fired {count_noun(found['fired'], 'time')} over {count_noun(found['results'], 'result')}."
    fired = [(share(one["since"]), share(one["until"])) for one in found["periods"]]
    picture = draw_preview(points, fired, limit, 1.0 if found["kind"] != "failing_case" else most, title) if points else ""
    return {**found, "picture": picture, "limit": limit, "newest": list(reversed(found["periods"]))[:20]}


async def _find_rule(request: Request, source: Source) -> tuple[Record, Record]:
    return await find_in_project(request, source, "alert", alerts.get_rule)


def _find_kind(word: str) -> AlertKind:
    for kind in KINDS:
        if kind == word:
            return kind
    raise Refusal("BAD_REQUEST", f"unknown kind of rule; expected one of {', '.join(KINDS)}")


def _find_address(project: Record, *parts: str) -> str:
    return find_project_address(project["id"], "alerts", *parts)


def _list_ways(project: Record) -> list[tuple[str, str]]:
    here = _find_address(project)
    return [(here.removesuffix("/alerts"), project["name"]), (here, "Alerts")]


def _read_days(word: str) -> float:
    return float(word) if word in ("1", "7", "30", "90") else float(_DAYS)
