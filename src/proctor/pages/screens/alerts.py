"""Alert rules of a project: state, messages, forms, and a preview of when a rule would have fired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from proctor.model.evidence import Json
from proctor.pages.desk import find_in_project, find_project, get_caller, get_hub
from proctor.pages.form_page import Form, Question, ask_first, belongs_in_form, refuse_if_changed, show_form
from proctor.pages.forms import read_form
from proctor.pages.inputs import derive_fields, read_inputs, write_record
from proctor.pages.pictures import draw_preview
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.words import find_project_address, quote_part
from proctor.report.words.html_text import duration_words
from proctor.report.words.wording import count_noun
from proctor.service.access.agents import list_agents
from proctor.service.access.permissions import require_writer
from proctor.service.notify import alerts
from proctor.service.notify.alert_kinds import KINDS, AlertKind, Setting
from proctor.service.notify.alerts import AlertDraft, AlertPreview, NewAlert, preview_alert
from proctor.service.refusals import Refusal
from proctor.service.runs.schedules import list_schedules
from proctor.service.traces.cases import list_cases
from proctor.service.verification.shared.fields import Field, Kind, Table


def _make_field(setting: Setting) -> Field:
    kind = "string" if setting.id_of else "integer" if setting.whole else "number"
    return Field(Kind({"type": kind}, lambda value: value), setting.about)


_SETTINGS: Table = {name: _make_field(setting) for kind in KINDS.values() for name, setting in kind.settings.items()}
"""Settings of all kinds of rules."""
_OWN = derive_fields(NewAlert)
_DAYS = "7"


async def show_alerts(request: Request, source: Source) -> Response:
    """Show the rules of a project."""
    project = await find_project(request, source)
    page = await alerts.list_alerts(
        get_hub(request), get_caller(request), project_id=project["id"], limit=50, cursor=request.query_params.get("cursor")
    )
    return render_page(request, "alerts.html", {"page": page, "kinds": KINDS, "names": await _name_subjects(request, project)})


async def show_alert(request: Request, source: Source) -> Response:
    """Show one rule with a preview and its messages."""
    project, rule = await _find_rule(request, source)
    hub, caller = get_hub(request), get_caller(request)
    deliveries = await alerts.list_deliveries(hub, caller, rule["id"], limit=20, cursor=request.query_params.get("cursor"))
    days = _read_days(request.query_params.get("days", _DAYS))
    draft = AlertDraft(project_id=project["id"], agent_id=rule["agent_id"], kind=rule["kind"], settings=rule["settings"], days=days)
    try:
        preview = _make_preview(await preview_alert(hub, caller, draft))
    except Refusal as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        preview = None  # its case or agent was deleted
    values = {"rule": rule, "page": deliveries, "preview": preview, "days": f"{days:g}"}
    return render_page(request, "alert.html", {**values, "names": await _name_subjects(request, project)})


async def show_new_alert(request: Request, source: Source) -> Response:
    """Show the form of a new rule of a kind."""
    require_writer(get_caller(request), "alerts can be created")
    project = await find_project(request, source)
    kind = _find_kind(request.query_params.get("kind") or next(iter(KINDS)))
    form = await _make_form(request, project, kind)
    start = {**write_record(form.fields, {name: field.default for name, field in form.fields.items()}), **_write_defaults(kind)}
    return show_form(request, form, {**start, "active": "on"})


async def create_alert(request: Request, source: Source) -> Response:
    """Save a rule, or only preview it."""
    body = await read_form(request)
    require_writer(get_caller(request), "alerts can be created")
    project = await find_project(request, source)
    kind = _find_kind(request.query_params.get("kind", ""))
    form = await _make_form(request, project, kind)
    try:
        inputs = read_inputs(form.fields, body)
        if body.get("only") == "preview":
            return await _show_preview(request, form, body, inputs, project, kind)
        rule = await alerts.create_alert(get_hub(request), get_caller(request), _make_spec(inputs, project, kind))
    except Refusal as refusal:
        if not (belongs_in_form(refusal) or refusal.code == "NOT_FOUND"):
            raise
        return show_form(request, form, body, _move_problems(refusal))
    address = _find_address(project, str(rule["id"]))
    if rule["secret"] is None:
        return redirect(address)
    return render_page(request, "once.html", {"shown": rule["secret"], "back": address, "name": rule["name"]})


async def show_change(request: Request, source: Source) -> Response:
    """Show the form of a rule."""
    project, rule = await _find_rule(request, source)
    form = await _make_form(request, project, rule["kind"], rule)
    return show_form(request, form, _write_rule(form.fields, rule))


async def change_alert(request: Request, source: Source) -> Response:
    """Save changes to a rule, or only preview them."""
    body = await read_form(request)
    project, rule = await _find_rule(request, source)
    form = await _make_form(request, project, rule["kind"], rule, seen=body.get("seen", ""))
    try:
        if body.get("only") == "preview":
            return await _show_preview(request, form, body, read_inputs(form.fields, body), project, rule["kind"], rule["agent_id"])
        refuse_if_changed(body, rule["updated_at"])
        inputs = read_inputs(form.fields, body, before=_write_rule(form.fields, rule))
        if inputs:
            await alerts.update_alert(get_hub(request), get_caller(request), rule["id"], _gather_settings(inputs))
    except Refusal as refusal:
        if not (belongs_in_form(refusal) or refusal.code == "NOT_FOUND"):
            raise
        return show_form(request, form, body, _move_problems(refusal))
    return redirect(_find_address(project, rule["id"]))


async def switch_alert(request: Request, source: Source) -> Response:
    """Enable or disable a rule."""
    await read_form(request)
    project, rule = await _find_rule(request, source)
    await alerts.update_alert(get_hub(request), get_caller(request), rule["id"], {"active": not rule["active"]})
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
    address = _find_address(project, rule["id"])
    question = Question(
        title=f"Delete {rule['name']}?",
        about="Its messages are deleted too.",
        action=f"{address}/delete",
        button="Delete",
        back=address,
        crumbs=_list_breadcrumbs(project),
    )
    return ask_first(request, question)


async def delete_alert(request: Request, source: Source) -> Response:
    """Delete a rule and its messages."""
    await read_form(request)
    project, rule = await _find_rule(request, source)
    await alerts.delete_alert(get_hub(request), get_caller(request), rule["id"])
    return redirect(_find_address(project))


# --- forms ------------------------------------------------------------------------------------------------------------


async def _make_form(request: Request, project: Record, kind: AlertKind, rule: Record | None = None, seen: str = "") -> Form:
    own = ("name", "agent_id", "channel", "webhook_url", "email", "secret", "active")
    # The channel of a rule does not change.
    shown = ("email", "active") if rule and rule["channel"] == "email" else ("webhook_url", "active")
    shown += ("secret",) if rule and rule["channel"] == "webhook" else ()
    kind_fields: Table = {
        **{name: _OWN[name] for name in own[: 1 if rule is not None or not KINDS[kind].watched.of_agents else 2]},
        **{name: _SETTINGS[name] for name in KINDS[kind].settings},
        **{name: _OWN[name] for name in own[2:] if rule is None or name in shown},
    }
    address = _find_address(project)
    title = f"Edit {rule['name']}" if rule else KINDS[kind].title
    return Form(
        title=title,
        about=KINDS[kind].about,
        action=f"{address}/{quote_part(rule['id'])}/change" if rule else f"{address}/new?kind={kind}",
        button="Save",
        back=f"{address}/{quote_part(rule['id'])}" if rule else address,
        fields=kind_fields,
        choices={
            **{name: [(entry["id"], entry["name"]) for entry in found] for name, found in (await _list_subjects(request, project)).items()},
            "window_s": _list_windows(rule),
        },
        kinds=[] if rule else [(f"{address}/new?kind={choice}", KINDS[choice].title, choice == kind) for choice in KINDS],
        partial=rule is not None,
        seen=seen or ("" if rule is None else rule["updated_at"]),
        updated_at="" if rule is None else rule["updated_at"],
        crumbs=_list_breadcrumbs(project),
        extra="preview.html",
        values={"preview": None},
    )


async def _list_subjects(request: Request, project: Record) -> dict[str, Sequence[Record]]:
    """Return the newest objects of a project that rules can watch, by the field that names them."""
    hub, caller = get_hub(request), get_caller(request)
    return {
        "agent_id": (await list_agents(hub, caller, project_id=project["id"], limit=100))["data"],
        "case_id": (await list_cases(hub, caller, project_id=project["id"], limit=100))["data"],
        "schedule_id": (await list_schedules(hub, caller, project_id=project["id"], limit=100))["data"],
    }


async def _name_subjects(request: Request, project: Record) -> dict[str, str]:
    return {entry["id"]: entry["name"] for found in (await _list_subjects(request, project)).values() for entry in found}


def _list_windows(rule: Record | None) -> list[tuple[str, str]]:
    """Return lengths of a time window to choose from, with that of the rule."""
    own = {float((rule["settings"] or {}).get("window_s", 3600))} if rule else set()
    return [(f"{seconds:g}", _name_window(seconds)) for seconds in sorted({900.0, 3600.0, 21_600.0, 86_400.0, 604_800.0} | own)]


def _name_window(seconds: float) -> str:
    for length, noun in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % length == 0:
            return count_noun(int(seconds / length), noun)
    return duration_words(seconds * 1000)


async def _show_preview(
    request: Request,
    form: Form,
    sent: Mapping[str, str],
    inputs: Mapping[str, Json],
    project: Record,
    kind: AlertKind,
    agent_id: str | None = None,
) -> Response:
    """Show the form again with its unsaved input and a preview of when the rule would have fired."""
    settings = {name: value for name, value in inputs.items() if name in KINDS[kind].settings}
    draft = AlertDraft(project_id=project["id"], agent_id=inputs.get("agent_id", agent_id), kind=kind, settings=settings, days=7)
    preview = _make_preview(await preview_alert(get_hub(request), get_caller(request), draft))
    return show_form(request, msgspec.structs.replace(form, values={"preview": preview}), sent)


def _make_spec(inputs: Mapping[str, Json], project: Record, kind: AlertKind) -> NewAlert:
    missing = [name for name in ("name",) if not inputs.get(name)]
    if missing:
        raise Refusal("VALIDATION_ERROR", "the rule is incomplete", fields={name: ["required"] for name in missing})
    fields = _gather_settings(inputs)
    return NewAlert(project_id=project["id"], kind=kind, **{name: value for name, value in fields.items() if value is not None})


def _gather_settings(inputs: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of a rule with those of its kind under `settings`, as in REST."""
    settings = {name: value for name, value in inputs.items() if name in _SETTINGS}
    # The secret is never shown again; an empty input does not delete it.
    rest = {name: value for name, value in inputs.items() if name not in _SETTINGS and not (name == "secret" and value is None)}
    return {**rest, "settings": settings} if settings else rest


def _move_problems(refusal: Refusal) -> Refusal:
    """Return the refusal with problems of `settings.below` at the input `below`."""
    fields = {name.removeprefix("settings."): texts for name, texts in refusal.fields.items()}
    return Refusal(refusal.code, refusal.message, fields=fields, hint=refusal.hint)


def _write_rule(fields: Table, rule: Record) -> dict[str, str]:
    return write_record(fields, {**rule, **(rule["settings"] or {}), "secret": None})


def _write_defaults(kind: AlertKind) -> dict[str, str]:
    return write_record({name: _SETTINGS[name] for name in KINDS[kind].settings}, KINDS[kind].defaults)


# --- display ----------------------------------------------------------------------------------------------------------


def _make_preview(found: AlertPreview) -> Record:
    """Return a preview with its chart, which begins at the first result, and its summary."""
    since = next((entry["at"] for entry in found["points"] if entry["value"] is not None), found["since"])
    begin, end = (datetime.fromisoformat(at).timestamp() for at in (since, found["until"]))
    length = max(1.0, end - begin)

    def share(at: str | None) -> float:
        return 1.0 if at is None else max(0.0, (datetime.fromisoformat(at).timestamp() - begin) / length)

    points = [(share(entry["at"]), entry["value"]) for entry in found["points"] if entry["at"] >= since]
    # A value holds until the next one.
    points += [(1.0, value) for _, value in points[-1:]]
    kind = KINDS[found["kind"]]
    limit = float(found["settings"][kind.limit])
    most = max((value for _, value in points if value is not None), default=0.0)
    title = f"It would have fired {count_noun(found['fired'], 'time')} over {count_noun(found['results'], 'result')}."
    fired = [(share(entry["since"]), share(entry["until"])) for entry in found["periods"]]
    picture = draw_preview(points, fired, limit, 1.0 if kind.is_share else most, title) if points else ""
    return {
        **found,
        "since": since,
        "picture": picture,
        "limit": limit,
        "is_share": kind.is_share,
        "newest": list(reversed(found["periods"]))[:20],
    }


async def _find_rule(request: Request, source: Source) -> tuple[Record, Record]:
    return await find_in_project(request, source, "alert", alerts.get_alert)


def _find_kind(word: str) -> AlertKind:
    for kind in KINDS:
        if kind == word:
            return kind
    raise Refusal("BAD_REQUEST", f"unknown kind of rule; expected one of {', '.join(KINDS)}")


def _find_address(project: Record, *parts: str) -> str:
    return find_project_address(project["id"], "alerts", *parts)


def _list_breadcrumbs(project: Record) -> list[tuple[str, str]]:
    address = _find_address(project)
    return [(address.removesuffix("/alerts"), project["name"]), (address, "Alerts")]


def _read_days(word: str) -> float:
    return float(word) if word in ("1", "7", "30", "90") else float(_DAYS)
