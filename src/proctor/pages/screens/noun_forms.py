"""Forms of the verification API, generated from the declared operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from proctor.model.evidence import Json
from proctor.pages import nouns
from proctor.pages.desk import get_caller, get_hub
from proctor.pages.form_page import Form, Question, ask_first, belongs_in_form, refuse_if_changed, show_form
from proctor.pages.forms import read_form
from proctor.pages.inputs import read_inputs, write_record
from proctor.pages.ports import Source
from proctor.pages.rendering import find_origin, redirect, render_page
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


async def show(request: Request, source: Source, parts: list[str]) -> Response:
    """Show the form at an address, or a confirmation."""
    require_writer(get_caller(request), "using the verification API")
    last, above = parts[-1], parts[:-1]
    if last == "delete" and (operation := nouns.find_operation("DELETE", above)) is not None:
        return await _ask(request, operation, parts)
    if last == "change" and (operation := nouns.find_operation("PATCH", above)) is not None:
        record = await _read_record(request, above)
        form = await _make_form(request, operation, parts, dict(request.query_params), record)
        return show_form(request, form, write_record(form.fields, record))
    operation = _find_form(above if last == "new" else parts)
    if last == "remove" and operation is None:
        operation = nouns.find_link("DELETE", above)
    if operation is None:
        raise Refusal("NOT_FOUND", "page not found")
    form = await _make_form(request, operation, parts, dict(request.query_params))
    prefilled = {name: value for name, value in request.query_params.items() if name in form.fields}
    return show_form(request, form, {**write_record(form.fields, _list_defaults(form.fields)), **prefilled})


async def act(request: Request, source: Source) -> Response:
    """Run the operation of a form."""
    form_fields = await read_form(request)
    rest: str = request.path_params.get("rest", "")
    parts = [request.path_params["noun"], *(part for part in rest.split("/") if rest)]
    last, above = parts[-1], parts[:-1]
    if last == "delete" and (operation := nouns.find_operation("DELETE", above)) is not None:
        await _call(request, operation, above)
        return redirect(_find_address_after(above))
    if last == "change" and (operation := nouns.find_operation("PATCH", above)) is not None:
        return await _change(request, operation, parts, form_fields)
    operation, address = (nouns.find_link("DELETE", above), above) if last == "remove" else (_find_form(parts, any_post=True), parts)
    if operation is None:
        raise Refusal("NOT_FOUND", "page not found")
    return await _send(request, source, operation, address, form_fields)


def _find_form(parts: list[str], *, any_post: bool = False) -> Operation | None:
    """Return the operation of a form."""
    for method in ("PUT", "POST"):
        found = nouns.find_operation(method, parts)
        if found is not None and (any_post or found.takes is not None):
            return found
    return nouns.find_link("POST", parts)


async def _change(request: Request, operation: Operation, parts: list[str], sent: Mapping[str, str]) -> Response:
    above = parts[:-1]
    record = await _read_record(request, above)
    form = await _make_form(request, operation, parts, sent, record)
    try:
        refuse_if_changed(sent, str(record.get("updated_at", "")))
        changes = read_inputs(form.fields, sent, before=write_record(form.fields, record))
        if changes:
            await _call(request, operation, above, changes)
    except Refusal as refusal:
        if not belongs_in_form(refusal):
            raise
        return show_form(request, form, sent, refusal)
    return redirect(nouns.make_address(above))


async def _send(request: Request, source: Source, operation: Operation, parts: list[str], sent: Mapping[str, str]) -> Response:
    links = len(operation.path[1:].split("/")) > len(parts)
    form = await _make_form(request, operation, parts, sent)
    try:
        inputs = read_inputs(form.fields, sent)
        if links:
            found = await _call(request, operation, [*parts, str(inputs.get(operation.ids[-1], ""))])
        else:
            body = inputs.get("state") if operation.takes_whole else inputs
            found = await _call(request, operation, parts, body if operation.takes is not None else None)
    except Refusal as refusal:
        names_other = refusal.code == "NOT_FOUND" and any(field.kind.refers for field in form.fields.values())
        if not form.fields or not (belongs_in_form(refusal) or names_other):
            raise
        return show_form(request, form, sent, refusal)
    return _answer(request, operation, parts, found)


def _answer(request: Request, operation: Operation, parts: list[str], found: Any) -> Response:
    shown_once = _find_shown_once(found, find_origin(request)) if isinstance(found, dict) else None  # type: ignore[arg-type]
    if shown_once is not None:
        # After a key or link, go back to its record; after a sandbox, to the sandbox.
        address = nouns.make_address(parts[:2] if _ANSWERED_ONCE in found or _LINK in found else [*parts, str(found["id"])])
        return render_page(request, "once.html", {"shown": shown_once, "back": address, "name": found.get("name")})
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


async def _make_form(
    request: Request, operation: Operation, parts: list[str], sent: Mapping[str, str], record: Mapping[str, Json] | None = None
) -> Form:
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
        choices=await _list_choices(request, table),
        partial=operation.method == "PATCH",
        seen=sent.get("seen") or ("" if record is None else str(record.get("updated_at", ""))),
        updated_at="" if record is None else str(record.get("updated_at", "")),
        crumbs=[(nouns.make_address(parts[:1]), name_noun(parts[0]))],
    )


def _is_link(operation: Operation) -> bool:
    return operation.path.endswith("}") and operation.takes is None and len(operation.ids) > 1


async def _ask(request: Request, operation: Operation, parts: list[str]) -> Response:
    above = parts[:-1]
    # The confirmation shows the name, which people know.
    record = await _read_record(request, above) if nouns.find_operation("GET", above) is not None else {"id": above[-1]}
    question = Question(
        title=f"Delete {nouns.find_title(record)}?",
        about=operation.about,
        action=nouns.make_address(parts),
        button="Delete",
        back=_find_address_after(above) if nouns.find_operation("GET", above) is None else nouns.make_address(above),
        crumbs=[(nouns.make_address(parts[:1]), name_noun(parts[0]))],
    )
    return ask_first(request, question)


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


async def _list_choices(request: Request, table: Table) -> dict[str, list[tuple[str, str]]]:
    """Return the newest records that reference fields may name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, field in table.items():
        listing = next(
            (each for each in nouns.OPERATIONS if each.pages and each.noun.kind == field.kind.refers and each.path.count("/") == 1), None
        )
        if listing is not None and listing.method == "GET":
            page = await listing.call(get_hub(request), get_caller(request), limit=_CHOICES)
            found[name] = [(str(row["id"]), nouns.find_title(row)) for row in page["data"]]
    return found


async def _call(request: Request, operation: Operation, parts: list[str], *more: Any) -> Any:
    ids = [part for word, part in zip(operation.path[1:].split("/"), parts, strict=True) if word.startswith("{")]
    body_arguments = [argument for argument in more if argument is not None or operation.takes_optional]
    return await operation.call(get_hub(request), get_caller(request), *ids, *body_arguments)


async def _read_record(request: Request, parts: list[str]) -> dict[str, Json]:
    operation = nouns.find_operation("GET", parts)
    assert operation is not None, parts  # every editable record has a GET
    return await _call(request, operation, parts)


def _find_address_after(parts: list[str]) -> str:
    """Return the nearest page above an address."""
    for number in range(len(parts) - 1, 0, -1):
        if nouns.find_operation("GET", parts[:number]) is not None:
            return nouns.make_address(parts[:number])
    return nouns.make_address(parts[:1])


def _list_defaults(table: Table) -> dict[str, Json]:
    return {name: field.default for name, field in table.items()}
