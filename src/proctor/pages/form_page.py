"""One page for every form and one for every question before something is taken away.

A form that is refused comes back with everything that was typed but keys and secrets, each problem beside its input and the rest above.
What nobody can mend in a form (no session, no database) is answered by `error_page.py`, which keeps what was typed as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from proctor.pages.inputs import make_inputs, sort_problems
from proctor.pages.ports import Record, Source
from proctor.pages.rendering import render_page
from proctor.service.refusals import Refusal
from proctor.service.verification.shared.fields import Table

MENDED_IN_FORM = ("VALIDATION_ERROR", "BAD_REQUEST", "CONFLICT", "PAYLOAD_TOO_LARGE")
"""Refusals after which the form is shown again. A record that is named and not there is one of them only where a field names it."""
Ways = Sequence[tuple[str, str]]
"""Addresses and names of what is above a page."""


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """What a form asks for, and where it is sent."""

    title: str
    about: str = ""
    action: str
    button: str
    back: str
    """The page to go to without sending it."""
    fields: Table
    choices: Mapping[str, Sequence[tuple[str, str]]] = {}
    partial: bool = False
    seen: str = ""
    """When the record was changed last, as the form knows it."""
    updated_at: str = ""
    """When it was changed last in truth: who was told of that, and sends the form again, overwrites it."""
    crumbs: Ways = ()
    project: Record | None = None
    extra: str = ""
    """A template with more to see beside the form."""
    values: Mapping[str, object] = {}
    """What that template gets."""


def show_form(
    request: Request, source: Source, form: Form, typed: Mapping[str, str] | None = None, refusal: Refusal | None = None
) -> Response:
    """Show a form: empty, filled in, or refused."""
    if refusal is not None and refusal.code == "CONFLICT" and form.updated_at:
        # Whoever was told of the change and sends the form once more means to overwrite it.
        form = msgspec.structs.replace(form, seen=form.updated_at)
    problems = {} if refusal is None else refusal.fields
    apart = sort_problems(form.fields, problems).get("", [])
    values = {
        "source": source,
        "project": form.project,
        "form": form,
        "inputs": make_inputs(form.fields, typed or {}, problems=problems, choices=form.choices, partial=form.partial),
        "refusal": refusal,
        "apart": apart,
        **form.values,
    }
    return render_page(request, "form.html", values, status=200 if refusal is None else refusal.status)


def is_mended_in_form(refusal: Refusal) -> bool:
    """Return whether a refusal is told in the form; others have a page of their own."""
    return refusal.code in MENDED_IN_FORM


def refuse_if_changed(form: Mapping[str, str], updated_at: str) -> None:
    """Refuse a form that was made of a record which somebody changed meanwhile."""
    if form.get("seen") and form["seen"] != updated_at:
        raise Refusal(
            "CONFLICT",
            f"somebody changed this at {updated_at}, after you opened the form; nothing was changed by you",
            hint="what you typed is still here: compare it with the page in another window, and send it again to overwrite what is there",
        )


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked before something is taken away."""

    title: str
    about: str = ""
    action: str
    button: str
    back: str
    crumbs: Ways = ()
    project: Record | None = None


def ask_first(request: Request, source: Source, question: Question) -> Response:
    """Show the question with a button that does it and a way back."""
    return render_page(request, "confirm.html", {"source": source, "project": question.project, "question": question})
