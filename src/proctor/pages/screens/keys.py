"""Keys of the organization: list, create, revoke."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from proctor.model.evidence import Json
from proctor.pages.desk import get_caller, get_hub
from proctor.pages.form_page import Form, Question, ask_first, belongs_in_form, show_form
from proctor.pages.forms import read_form
from proctor.pages.inputs import derive_fields, read_inputs
from proctor.pages.ports import Source
from proctor.pages.rendering import redirect, render_page
from proctor.pages.words import name_key_kind, quote_part
from proctor.service.access import keys
from proctor.service.access.agents import list_agents
from proctor.service.access.permissions import require_writer
from proctor.service.refusals import Refusal
from proctor.service.verification.authoring.solvers import list_solvers
from proctor.service.verification.shared.fields import Table

KINDS = tuple(kind for kind in keys.PREFIXES if kind != "sandbox")
"""Kinds that people create; a sandbox gets its token when it is created."""
FIELDS: Table = derive_fields(keys.NewKey)


async def show_keys(request: Request, source: Source) -> Response:
    """Show a page of keys."""
    params = request.query_params
    kind = params.get("kind") if params.get("kind") in KINDS else None
    project_id = params.get("project_id") or None
    page = await keys.list_keys(
        get_hub(request), get_caller(request), kind=kind, project_id=project_id, limit=50, cursor=params.get("cursor") or None
    )
    found = await _list_choices(request, source)
    values = {
        "page": page,
        "names": {id: name for choices in found.values() for id, name in choices},
        "kind": kind,
        "kinds": KINDS,
        "project_id": project_id,
        "own": get_caller(request).key_id,
        "now": get_hub(request).now(),
    }
    return render_page(request, "keys.html", values)


async def show_new_key(request: Request, source: Source) -> Response:
    """Show the form of a new key."""
    require_writer(get_caller(request), "keys can be created")
    kind = request.query_params.get("kind", "project")
    form = await _make_form(request, source, kind)
    prefilled = {name: request.query_params[name] for name in form.fields if name in request.query_params}
    return show_form(request, form, {"kind": kind, **prefilled})


async def create_key(request: Request, source: Source) -> Response:
    """Create a key and show it once."""
    form_fields = await read_form(request)
    require_writer(get_caller(request), "keys can be created")
    form = await _make_form(request, source, form_fields.get("kind", ""))
    try:
        row, secret = await keys.create_key(get_hub(request), get_caller(request), _make_spec(read_inputs(FIELDS, form_fields)))
    except Refusal as refusal:
        if not (belongs_in_form(refusal) or refusal.code == "NOT_FOUND"):
            raise
        return show_form(request, form, form_fields, refusal)
    return render_page(request, "once.html", {"shown": secret, "back": "/ui/keys", "name": row["name"]})


async def ask_revoke(request: Request, source: Source) -> Response:
    """Confirm the revocation of a key."""
    key = await keys.get_key(get_hub(request), get_caller(request), request.path_params["key"])
    is_current = key["id"] == get_caller(request).key_id
    question = Question(
        title=f"Revoke {key['name']} ({key['masked']})?",
        about=(
            "This is the key of your own session: you will be logged out. This cannot be undone."
            if is_current
            else "Clients with this key lose access, and its sessions end. This cannot be undone."
        ),
        action=f"/ui/keys/{quote_part(str(key['id']))}/revoke",
        button="Revoke",
        back="/ui/keys",
        crumbs=[("/ui/keys", "API keys")],
    )
    return ask_first(request, question)


async def revoke_key(request: Request, source: Source) -> Response:
    """Revoke a key."""
    await read_form(request)
    await keys.revoke_key(get_hub(request), get_caller(request), request.path_params["key"])
    return redirect("/ui/keys")


def _make_spec(inputs: Mapping[str, Json]) -> keys.KeySpec:
    missing = [name for name in ("kind", "name") if not inputs.get(name)]
    if missing:
        raise Refusal("VALIDATION_ERROR", "the key is incomplete", fields={name: ["required"] for name in missing})
    return keys.KeySpec(**inputs)


_OF_KIND = {"project": ("project_id", "agent_ids"), "solver": ("solver_id",), "run": ("benchmark_run_id", "solver_id")}
"""The fields of a kind, besides those of every key."""
_REQUIRED = ("project_id", "benchmark_run_id")


def _list_fields(kind: str) -> Table:
    """Return the fields of a key of this kind; for an unknown kind all of them."""
    special = {name for names in _OF_KIND.values() for name in names}
    if kind not in KINDS:
        return FIELDS
    shown = {name: field for name, field in FIELDS.items() if name not in special or name in _OF_KIND.get(kind, ())}
    needed = (*_REQUIRED, *(("solver_id",) if kind == "solver" else ()))
    return {name: dataclasses.replace(field, required=True) if name in needed else field for name, field in shown.items()}


async def _make_form(request: Request, source: Source, kind: str) -> Form:
    return Form(
        title="New key",
        about="The key is shown once, on the next page.",
        action="/ui/keys/new",
        button="Create key",
        back="/ui/keys",
        fields=_list_fields(kind),
        kinds=[(f"/ui/keys/new?kind={word}", name_key_kind(word).capitalize(), word == kind) for word in KINDS],
        choices={
            "kind": [(word, name_key_kind(word)) for word in KINDS],
            **await _list_choices(request, source),
        },
        crumbs=[("/ui/keys", "API keys")],
    )


async def _list_choices(request: Request, source: Source) -> dict[str, list[tuple[str, str]]]:
    """Return ids and names of what a key can be limited to, by the field that names it."""
    hub, caller = get_hub(request), get_caller(request)
    return {
        "project_id": [(entry["id"], entry["name"]) for entry in (await source.list_projects(None))["data"]],
        "solver_id": [(str(entry["id"]), str(entry["alias"])) for entry in (await list_solvers(hub, caller, limit=100))["data"]],
        "agent_ids": [(entry["id"], entry["name"]) for entry in (await list_agents(hub, caller, limit=100))["data"]],
    }
