"""Pages for forms and for confirmations.

A rejected form is shown again with the input (except keys and secrets) and each problem next to its field.
Errors that a form cannot fix (no session, no database) use `error_page.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from proctor.pages.inputs import make_inputs, sort_problems
from proctor.pages.rendering import render_page
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
    button: str
    back: str
    """Where Cancel leads."""
    fields: Table
    choices: Mapping[str, Sequence[tuple[str, str]]] = {}
    partial: bool = False
    seen: str = ""
    """The version (`updated_at`) that the form was opened with."""
    updated_at: str = ""
    """The current version: a form submitted again after a conflict overwrites it."""
    crumbs: Breadcrumbs = ()
    kinds: Sequence[tuple[str, str, bool]] = ()
    """Forms of other kinds: address, name, and whether it is this one."""
    extra: str = ""
    """A template shown next to the form."""
    values: Mapping[str, object] = {}
    """Values of that template."""


def show_form(request: Request, form: Form, typed: Mapping[str, str] | None = None, refusal: Refusal | None = None) -> Response:
    """Show a form: empty, filled in, or rejected."""
    if refusal is not None and refusal.code == "CONFLICT" and form.updated_at:
        # The user has seen the conflict; submitting again overwrites.
        form = msgspec.structs.replace(form, seen=form.updated_at)
    problems = {} if refusal is None else refusal.fields
    general_problems = sort_problems(form.fields, problems).get("", [])
    values = {
        "form": form,
        "inputs": make_inputs(form.fields, typed or {}, problems=problems, choices=form.choices, partial=form.partial),
        "refusal": refusal,
        "apart": general_problems,
        **form.values,
    }
    return render_page(request, "form.html", values, status=200 if refusal is None else refusal.status)


def belongs_in_form(refusal: Refusal) -> bool:
    """Return whether an error is shown in the form instead of on the error page."""
    return refusal.code in FORM_ERRORS


def refuse_if_changed(form: Mapping[str, str], updated_at: str) -> None:
    """Reject a form if its record was changed after the form was opened."""
    if form.get("seen") and form["seen"] != updated_at:
        raise Refusal(
            "CONFLICT",
            f"this was changed at {updated_at}, after you opened the form; your changes were not saved",
            hint="compare your input with the page in another window, and submit again to overwrite",
        )


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A confirmation before something is deleted."""

    title: str
    about: str = ""
    action: str
    button: str
    back: str
    crumbs: Breadcrumbs = ()


def ask_first(request: Request, question: Question) -> Response:
    """Show the confirmation page."""
    return render_page(request, "confirm.html", {"question": question})
