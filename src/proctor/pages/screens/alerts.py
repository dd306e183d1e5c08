"""Alert rules of a project: state, messages, forms, and a preview of when a rule would have fired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from starlette.responses import Response

from proctor.model.evidence import Json
from proctor.pages.form_page import Form, ask_first, refuse_if_changed, require_inputs, returning_form, show_form
from proctor.pages.inputs import derive_fields, read_inputs, write_record
from proctor.pages.pictures import draw_preview
from proctor.pages.places import Record
from proctor.pages.rendering import redirect
from proctor.pages.visit import Visit
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
_WINDOWS_S = (900.0, 3600.0, 21_600.0, 86_400.0, 604_800.0)


async def show_alerts(visit: Visit) -> Response:
    """Show the rules of a project."""
    await visit.find_project()
    page = await visit.call(alerts.list_alerts, project_id=visit.project_id, limit=50, cursor=visit.cursor)
    return visit.render("alerts.html", page=page, kinds=KINDS, names=await _name_subjects(visit))


async def show_alert(visit: Visit) -> Response:
    """Show one rule with a preview and its messages."""
    rule = await _find_rule(visit)
    page = await visit.call(alerts.list_deliveries, rule["id"], limit=20, cursor=visit.cursor)
    word = visit.params.get("days")
    days = word if word in ("1", "7", "30", "90") else _DAYS
    try:
        preview = await _preview(visit, rule["kind"], rule["settings"], rule["agent_id"], float(days))
    except Refusal as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        preview = None  # its case or agent was deleted
    return visit.render("alert.html", rule=rule, page=page, preview=preview, days=days, names=await _name_subjects(visit))


async def show_new_alert(visit: Visit) -> Response:
    """Show the form of a new rule of a kind."""
    require_writer(visit.caller, "alerts can be created")
    await visit.find_project()
    kind = _find_kind(visit.params.get("kind") or next(iter(KINDS)))
    form = await _make_form(visit, kind)
    start = {**{name: field.default for name, field in form.fields.items()}, **KINDS[kind].defaults}
    return show_form(visit, form, {**write_record(form.fields, start), "active": "on"})


async def create_alert(visit: Visit) -> Response:
    """Save a rule, or only preview it."""
    body = await visit.read_form()
    require_writer(visit.caller, "alerts can be created")
    await visit.find_project()
    kind = _find_kind(visit.params.get("kind", ""))
    form = await _make_form(visit, kind)
    with returning_form(visit, form, body, "NOT_FOUND", inside="settings"):
        inputs = read_inputs(form.fields, body)
        if body.get("only") == "preview":
            return await _show_preview(visit, form, body, inputs, kind, inputs.get("agent_id"))
        require_inputs(inputs, "the rule", "name")
        given = {name: value for name, value in _gather_settings(inputs).items() if value is not None}
        rule = await visit.call(alerts.create_alert, NewAlert(project_id=visit.project_id, kind=kind, **given))
    address = visit.find_address("alerts", rule["id"])
    if rule["secret"] is None:
        return redirect(address)
    return visit.render("once.html", shown=rule["secret"], back=address, name=rule["name"])


async def show_change(visit: Visit) -> Response:
    """Show the form of a rule."""
    rule = await _find_rule(visit)
    form = await _make_form(visit, rule["kind"], rule)
    return show_form(visit, form, _write_rule(form.fields, rule))


async def change_alert(visit: Visit) -> Response:
    """Save changes to a rule, or only preview them."""
    body = await visit.read_form()
    rule = await _find_rule(visit)
    form = await _make_form(visit, rule["kind"], rule)
    with returning_form(visit, form, body, "NOT_FOUND", inside="settings"):
        if body.get("only") == "preview":
            return await _show_preview(visit, form, body, read_inputs(form.fields, body), rule["kind"], rule["agent_id"])
        refuse_if_changed(body, rule)
        inputs = read_inputs(form.fields, body, before=_write_rule(form.fields, rule))
        if inputs:
            await visit.call(alerts.update_alert, rule["id"], _gather_settings(inputs))
    return redirect(visit.find_address("alerts", rule["id"]))


async def switch_alert(visit: Visit) -> Response:
    """Enable or disable a rule."""
    await visit.read_form()
    rule = await _find_rule(visit)
    await visit.call(alerts.update_alert, rule["id"], {"active": not rule["active"]})
    return redirect(visit.find_address("alerts", rule["id"]))


async def test_alert(visit: Visit) -> Response:
    """Send a test message."""
    await visit.read_form()
    rule = await _find_rule(visit)
    await visit.call(alerts.send_test, rule["id"])
    return redirect(f"{visit.find_address('alerts', rule['id'])}#sent")


async def ask_delete(visit: Visit) -> Response:
    """Confirm the deletion of a rule."""
    rule = await _find_rule(visit)
    back = visit.find_address("alerts", rule["id"])
    crumbs = visit.list_crumbs("alerts", "Alerts")
    return ask_first(visit, f"Delete {rule['name']}?", "Its messages are deleted too.", action=f"{back}/delete", back=back, crumbs=crumbs)


async def delete_alert(visit: Visit) -> Response:
    """Delete a rule and its messages."""
    await visit.read_form()
    rule = await _find_rule(visit)
    await visit.call(alerts.delete_alert, rule["id"])
    return redirect(visit.find_address("alerts"))


# --- forms ------------------------------------------------------------------------------------------------------------


async def _make_form(visit: Visit, kind: AlertKind, rule: Record | None = None) -> Form:
    settings = {name: _SETTINGS[name] for name in KINDS[kind].settings}
    if rule is None:
        before = ("name", "agent_id") if KINDS[kind].watched.of_agents else ("name",)
        after: tuple[str, ...] = ("channel", "webhook_url", "email", "secret", "active")
        address, own, title = visit.find_address("alerts"), f"{visit.find_address('alerts')}/new?kind={kind}", KINDS[kind].title
    else:
        # The channel of a rule does not change.
        before = ("name",)
        after = {"email": ("email", "active"), "webhook": ("webhook_url", "secret", "active"), "slack": ("webhook_url", "active")}[
            rule["channel"]
        ]
        address = visit.find_address("alerts", rule["id"])
        own, title = f"{address}/change", f"Edit {rule['name']}"
    subjects = {name: [(entry["id"], entry["name"]) for entry in found] for name, found in (await _list_subjects(visit)).items()}
    new = f"{visit.find_address('alerts')}/new?kind="
    return Form(
        title=title,
        about=KINDS[kind].about,
        action=own,
        back=address,
        fields={**{name: _OWN[name] for name in before}, **settings, **{name: _OWN[name] for name in after}},
        choices={**subjects, "window_s": _list_windows(rule)},
        kinds=[] if rule else [(f"{new}{choice}", KINDS[choice].title, choice == kind) for choice in KINDS],
        record=rule,
        crumbs=visit.list_crumbs("alerts", "Alerts"),
        extra="preview.html",
    )


async def _list_subjects(visit: Visit) -> dict[str, Sequence[Record]]:
    """Return the newest objects of a project that rules can watch, by the field that names them."""
    lists: dict[str, Any] = {"agent_id": list_agents, "case_id": list_cases, "schedule_id": list_schedules}
    return {name: (await visit.call(listed, project_id=visit.project_id, limit=100))["data"] for name, listed in lists.items()}


async def _name_subjects(visit: Visit) -> dict[str, str]:
    return {entry["id"]: entry["name"] for found in (await _list_subjects(visit)).values() for entry in found}


def _list_windows(rule: Record | None) -> list[tuple[str, str]]:
    """Return lengths of a time window to choose from, with that of the rule."""
    own = {float((rule["settings"] or {}).get("window_s", 3600))} if rule else set()
    return [(f"{seconds:g}", _name_window(seconds)) for seconds in sorted({*_WINDOWS_S, *own})]


def _name_window(seconds: float) -> str:
    for length, noun in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % length == 0:
            return count_noun(int(seconds / length), noun)
    return duration_words(seconds * 1000)


async def _show_preview(
    visit: Visit, form: Form, sent: Mapping[str, str], inputs: Mapping[str, Json], kind: AlertKind, agent_id: str | None
) -> Response:
    """Show the form again with its unsaved input and a preview of when the rule would have fired."""
    settings = {name: value for name, value in inputs.items() if name in KINDS[kind].settings}
    return show_form(visit, form, sent, preview=await _preview(visit, kind, settings, agent_id, 7))


def _gather_settings(inputs: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of a rule with those of its kind under `settings`, as in REST."""
    settings = {name: value for name, value in inputs.items() if name in _SETTINGS}
    # The secret is never shown again; an empty input does not delete it.
    rest = {name: value for name, value in inputs.items() if name not in _SETTINGS and not (name == "secret" and value is None)}
    return {**rest, "settings": settings} if settings else rest


def _write_rule(fields: Table, rule: Record) -> dict[str, str]:
    return write_record(fields, {**rule, **(rule["settings"] or {}), "secret": None})


# --- display ----------------------------------------------------------------------------------------------------------


async def _preview(visit: Visit, kind: AlertKind, settings: Any, agent_id: str | None, days: float) -> Record:
    draft = AlertDraft(project_id=visit.project_id, agent_id=agent_id, kind=kind, settings=settings, days=days)
    return _make_preview(await visit.call(preview_alert, draft))


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
    newest = list(reversed(found["periods"]))[:20]
    return {**found, "since": since, "picture": picture, "limit": limit, "is_share": kind.is_share, "newest": newest}


async def _find_rule(visit: Visit) -> Record:
    return await visit.find("alert", alerts.get_alert)


def _find_kind(word: str) -> AlertKind:
    for kind in KINDS:
        if kind == word:
            return kind
    raise Refusal("BAD_REQUEST", f"unknown kind of rule; expected one of {', '.join(KINDS)}")
