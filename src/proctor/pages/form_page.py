"""Pages for forms and for confirmations.

A rejected form is shown again with the input (except keys and secrets) and each problem next to its field.
Errors that a form cannot fix (no session, no database) use `error_page.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence

import msgspec
from starlette.responses import Response

from proctor.pages.inputs import make_inputs, sort_problems
from proctor.pages.places import Record
from proctor.pages.visit import Visit
from proctor.service.refusals import Refusal
from proctor.service.verification.shared.fields import Table

FORM_ERRORS = ("VALIDATION_ERROR", "BAD_REQUEST", "CONFLICT", "PAYLOAD_TOO_LARGE")
"""Errors after which the form is shown again; NOT_FOUND only if a field names the record."""
Breadcrumbs = Sequence[tuple[str, str]]
"""Address and name of each parent page, from the top."""


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """A form: its fields and its target."""

    title: str
    about: str = ""
    action: str
    button: str = "Save"
    back: str
    """Where Cancel leads."""
    fields: Table
    choices: Mapping[str, Sequence[tuple[str, str]]] = {}
    record: Record | None = None
    """What is changed; None for a form that creates something."""
    crumbs: Breadcrumbs = ()
    kinds: Sequence[tuple[str, str, bool]] = ()
    """Forms of other kinds: address, name, and whether it is this one."""
    extra: str = ""
    """A template shown next to the form, with a preview."""


def show_form(
    visit: Visit, form: Form, typed: Mapping[str, str] | None = None, refusal: Refusal | None = None, preview: object = None
) -> Response:
    """Show a form: empty, filled in, or rejected."""
    typed = typed or {}
    updated_at = str((form.record or {}).get("updated_at", ""))
    # After a conflict, which the user has seen, submitting again overwrites.
    is_conflict = refusal is not None and refusal.code == "CONFLICT"
    problems = {} if refusal is None else refusal.fields
    return visit.render(
        "form.html",
        status=200 if refusal is None else refusal.status,
        form=form,
        seen=updated_at if is_conflict else typed.get("seen") or updated_at,
        inputs=make_inputs(form.fields, typed, problems=problems, choices=form.choices, partial=form.record is not None),
        refusal=refusal,
        apart=sort_problems(form.fields, problems).get("", []),
        preview=preview,
    )


class FormRefused(Exception):
    """Raised with the response to a rejected form."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


@contextlib.contextmanager
def returning_form(visit: Visit, form: Form, typed: Mapping[str, str], *more_codes: str, inside: str = "") -> Generator[None]:
    """Show the form again if the block refuses its input; problems of `inside.name` are shown at the input `name`."""
    try:
        yield
    except Refusal as refusal:
        if refusal.code not in (*FORM_ERRORS, *more_codes):
            raise
        fields = {name.removeprefix(f"{inside}."): texts for name, texts in refusal.fields.items()}
        shown = Refusal(refusal.code, refusal.message, fields=fields, hint=refusal.hint)
        raise FormRefused(show_form(visit, form, typed, shown)) from refusal


def require_inputs(inputs: Mapping[str, object], noun: str, *names: str) -> None:
    """Reject a form in which one of these inputs is empty."""
    missing = [name for name in names if not inputs.get(name)]
    if missing:
        raise Refusal("VALIDATION_ERROR", f"{noun} is incomplete", fields={name: ["required"] for name in missing})


def refuse_if_changed(form: Mapping[str, str], record: Record) -> None:
    """Reject a form if its record was changed after the form was opened."""
    updated_at = str(record.get("updated_at", ""))
    if form.get("seen") and form["seen"] != updated_at:
        raise Refusal(
            "CONFLICT",
            f"this was changed at {updated_at}, after you opened the form; your changes were not saved",
            hint="compare your input with the page in another window, and submit again to overwrite",
        )


def ask_first(
    visit: Visit,
    title: str,
    about: str,
    *,
    action: str,
    back: str,
    button: str = "Delete",
    crumbs: Breadcrumbs = (),
    hidden: Mapping[str, str] | None = None,
) -> Response:
    """Show the confirmation before something is deleted; `hidden` is sent with it."""
    return visit.render(
        "confirm.html", title=title, about=about, action=action, back=back, button=button, crumbs=crumbs, hidden=hidden or {}
    )
