"""Forms of the verification API, generated from the declared operations."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from proctor.model.evidence import Json
from proctor.pages import nouns
from proctor.pages.form_page import Form, ask_first, refuse_if_changed, returning_form, show_form
from proctor.pages.inputs import read_inputs, write_record
from proctor.pages.places import Record
from proctor.pages.rendering import find_origin, redirect
from proctor.pages.visit import Visit
from proctor.pages.words import name_noun
from proctor.service.access.permissions import require_writer
from proctor.service.refusals import Refusal
from proctor.service.verification.shared.declaration import Operation
from proctor.service.verification.shared.fields import Table, label_of

_CHOICES = 100
"""Records suggested for a field that refers to one."""
_ACTIONS = {
    "publish": "Publish",
    "unpublish": "Unpublish",
    "complete": "Verify and complete",
    "cancel": "Cancel",
    "teardown": "Delete sandbox",
    "reset": "Reset",
    "state": "Upload end state",
    "api-keys": "Create key",
    "entities": "Bind entity",
    "shares": "Share link",
}
"""Button labels by the last path segment."""
_ANSWERED_ONCE = "key"
"""The answer field that is shown once."""
_LINK = "page_path"
"""The answer field with an address that is shown once."""


async def show(visit: Visit, parts: list[str]) -> Response:
    """Show the form at an address, or a confirmation."""
    require_writer(visit.caller, "using the verification API")
    last, above = parts[-1], parts[:-1]
    if last == "delete" and (operation := nouns.find_operation("DELETE", above)) is not None:
        return await _ask(visit, operation, parts)
    if last == "change" and (operation := nouns.find_operation("PATCH", above)) is not None:
        record = await _read_record(visit, above)
        form = await _make_form(visit, operation, parts, record)
        return show_form(visit, form, write_record(form.fields, record))
    operation = _find_form(above if last == "new" else parts)
    if last == "remove" and operation is None:
        operation = nouns.find_link("DELETE", above)
    if operation is None:
        raise Refusal("NOT_FOUND", "page not found")
    form = await _make_form(visit, operation, parts)
    defaults = write_record(form.fields, {name: field.default for name, field in form.fields.items()})
    return show_form(visit, form, {**defaults, **{name: value for name, value in visit.params.items() if name in form.fields}})


async def act(visit: Visit) -> Response:
    """Run the operation of a form."""
    sent = await visit.read_form()
    parts = find_parts(visit)
    last, above = parts[-1], parts[:-1]
    if last == "delete" and (operation := nouns.find_operation("DELETE", above)) is not None:
        await _call(visit, operation, above)
        return redirect(_find_address_after(above))
    if last == "change" and (operation := nouns.find_operation("PATCH", above)) is not None:
        return await _change(visit, operation, parts, sent)
    operation, address = (nouns.find_link("DELETE", above), above) if last == "remove" else (_find_form(parts, any_post=True), parts)
    if operation is None:
        raise Refusal("NOT_FOUND", "page not found")
    return await _send(visit, operation, address, sent)


def find_parts(visit: Visit) -> list[str]:
    """Return the path segments below `/ui`."""
    rest: str = visit.path.get("rest", "")
    return [visit.path["noun"], *(part for part in rest.split("/") if rest)]


def _find_form(parts: list[str], *, any_post: bool = False) -> Operation | None:
    """Return the operation of a form."""
    for method in ("PUT", "POST"):
        found = nouns.find_operation(method, parts)
        if found is not None and (any_post or found.takes is not None):
            return found
    return nouns.find_link("POST", parts)


async def _change(visit: Visit, operation: Operation, parts: list[str], sent: Mapping[str, str]) -> Response:
    above = parts[:-1]
    record = await _read_record(visit, above)
    form = await _make_form(visit, operation, parts, record)
    with returning_form(visit, form, sent):
        refuse_if_changed(sent, record)
        changes = read_inputs(form.fields, sent, before=write_record(form.fields, record))
        if changes:
            await _call(visit, operation, above, changes)
    return redirect(nouns.make_address(above))


async def _send(visit: Visit, operation: Operation, parts: list[str], sent: Mapping[str, str]) -> Response:
    form = await _make_form(visit, operation, parts)
    # Without fields, only the error page can show an error; a record that a field names may be missing.
    names_other = ["NOT_FOUND"] if any(field.kind.refers for field in form.fields.values()) else []
    with returning_form(visit, form, sent, *names_other) if form.fields else contextlib.nullcontext():
        inputs = read_inputs(form.fields, sent)
        if len(operation.path[1:].split("/")) > len(parts):
            found = await _call(visit, operation, [*parts, str(inputs.get(operation.ids[-1], ""))])
        else:
            body = inputs.get("state") if operation.takes_whole else inputs
            found = await _call(visit, operation, parts, body if operation.takes is not None else None)
    shown_once = _find_shown_once(found, find_origin(visit.request)) if isinstance(found, dict) else None  # type: ignore[arg-type]
    if shown_once is not None:
        # After a key or link, go back to its record; after a sandbox, to the sandbox.
        address = nouns.make_address(parts[:2] if _ANSWERED_ONCE in found or _LINK in found else [*parts, str(found["id"])])
        return visit.render("once.html", shown=shown_once, back=address, name=found.get("name"))
    if isinstance(found, dict) and operation.creates and nouns.find_operation("GET", [*parts, ""]) is not None:
        return redirect(nouns.make_address([*parts, str(found["id"])]))  # type: ignore[misc]
    return redirect(_find_address_after(parts))


def _find_shown_once(found: Mapping[str, Any], origin: str) -> str | None:
    """Return the secret that is shown only once: a key, a link, or the tokens of new sandboxes with their addresses."""
    if _ANSWERED_ONCE in found:
        return str(found[_ANSWERED_ONCE])
    if _LINK in found:
        return origin + str(found[_LINK])
    lines: list[str] = []
    for sandbox in found.get("sandboxes", [found]):
        credentials = sandbox.get("credentials") or {}
        if "token" in credentials:
            lines += [f"{name}: {value}" for name, value in credentials.items()]
    return "\n".join(lines) or None


async def _make_form(visit: Visit, operation: Operation, parts: list[str], record: Record | None = None) -> Form:
    table: Table = nouns.make_link_field(operation) if _is_link(operation) else {}
    if operation.takes is not None:
        table = {name: field for name, field in operation.takes.fields.items() if field.written}
    title = name_action(operation)
    target = parts if parts[-1] in ("change", "remove") else [part for part in parts if part != "new"]
    return Form(
        title=title,
        about=operation.about,
        action=nouns.make_address(target),
        button=title,
        back=_find_address_after([part for part in target if part not in ("change", "remove")]),
        fields=table,
        choices=await _list_choices(visit, table),
        record=record,
        crumbs=[(nouns.make_address(parts[:1]), name_noun(parts[0]))],
    )


def _is_link(operation: Operation) -> bool:
    return operation.path.endswith("}") and operation.takes is None and len(operation.ids) > 1


async def _ask(visit: Visit, operation: Operation, parts: list[str]) -> Response:
    above = parts[:-1]
    has_page = nouns.find_operation("GET", above) is not None
    # The confirmation shows the name, which people know.
    record = await _read_record(visit, above) if has_page else {"id": above[-1]}
    back = nouns.make_address(above) if has_page else _find_address_after(above)
    crumbs = [(nouns.make_address(parts[:1]), name_noun(parts[0]))]
    title = f"Delete {nouns.find_title(record)}?"
    return ask_first(visit, title, operation.about, action=nouns.make_address(parts), back=back, crumbs=crumbs)


def name_action(operation: Operation) -> str:
    """Return the button label of an operation."""
    if operation.method == "PATCH":
        return f"Edit {operation.noun.called}"
    words = [word for word in operation.path.split("/") if word and not word.startswith("{")]
    if len(words) > 1 and operation.method != "DELETE" and words[-1] in _ACTIONS:
        return _ACTIONS[words[-1]]
    if operation.method == "DELETE":
        return f"Remove {label_of(operation.ids[-1]).lower()}"
    if _is_link(operation):
        return f"Add {label_of(operation.ids[-1]).lower()}"
    return f"New {operation.noun.called}" if operation.creates else label_of(words[-1])


async def _list_choices(visit: Visit, table: Table) -> dict[str, list[tuple[str, str]]]:
    """Return the newest records that reference fields may name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, field in table.items():
        listing = next(
            (each for each in nouns.OPERATIONS if each.pages and each.noun.kind == field.kind.refers and each.path.count("/") == 1), None
        )
        if listing is not None and listing.method == "GET":
            page = await listing.call(visit.hub, visit.caller, limit=_CHOICES)
            found[name] = [(str(row["id"]), nouns.find_title(row)) for row in page["data"]]
    return found


async def _call(visit: Visit, operation: Operation, parts: list[str], *more: Any) -> Any:
    body_arguments = [argument for argument in more if argument is not None or operation.takes_optional]
    return await visit.call(operation.call, *nouns.find_ids(operation, parts), *body_arguments)


async def _read_record(visit: Visit, parts: list[str]) -> dict[str, Json]:
    operation = nouns.find_operation("GET", parts)
    assert operation is not None, parts  # every editable record has a GET
    return await _call(visit, operation, parts)


def _find_address_after(parts: list[str]) -> str:
    """Return the nearest page above an address."""
    for number in range(len(parts) - 1, 0, -1):
        if nouns.find_operation("GET", parts[:number]) is not None:
            return nouns.make_address(parts[:number])
    return nouns.make_address(parts[:1])
