"""Keys of the organization: list, create, revoke."""

from __future__ import annotations

import dataclasses

from starlette.responses import Response

from proctor.pages.form_page import Form, ask_first, require_inputs, returning_form, show_form
from proctor.pages.inputs import derive_fields, read_inputs
from proctor.pages.rendering import redirect
from proctor.pages.visit import Visit
from proctor.pages.words import name_key_kind, quote_part
from proctor.service.access import keys
from proctor.service.access.agents import list_agents
from proctor.service.access.permissions import require_writer
from proctor.service.verification.authoring.solvers import list_solvers
from proctor.service.verification.shared.fields import Table

KINDS = tuple(kind for kind in keys.PREFIXES if kind != "sandbox")
"""Kinds that people create; a sandbox gets its token when it is created."""
FIELDS: Table = derive_fields(keys.NewKey)
_OF_KIND = {"project": ("project_id", "agent_ids"), "solver": ("solver_id",), "run": ("benchmark_run_id", "solver_id")}
"""The fields of a kind, besides those of every key."""
_REQUIRED = ("project_id", "benchmark_run_id")
_CRUMBS = [("/ui/keys", "API keys")]


async def show_keys(visit: Visit) -> Response:
    """Show a page of keys."""
    kind = visit.params.get("kind") if visit.params.get("kind") in KINDS else None
    project_id = visit.params.get("project_id") or None
    page = await visit.call(keys.list_keys, kind=kind, project_id=project_id, limit=50, cursor=visit.cursor)
    return visit.render(
        "keys.html",
        page=page,
        names={id: name for choices in (await _list_choices(visit)).values() for id, name in choices},
        kind=kind,
        kinds=KINDS,
        project_id=project_id,
        own=visit.caller.key_id,
        now=visit.hub.now(),
    )


async def show_new_key(visit: Visit) -> Response:
    """Show the form of a new key."""
    require_writer(visit.caller, "keys can be created")
    kind = visit.params.get("kind", "project")
    form = await _make_form(visit, kind)
    return show_form(visit, form, {"kind": kind, **{name: visit.params[name] for name in form.fields if name in visit.params}})


async def create_key(visit: Visit) -> Response:
    """Create a key and show it once."""
    body = await visit.read_form()
    require_writer(visit.caller, "keys can be created")
    form = await _make_form(visit, body.get("kind", ""))
    with returning_form(visit, form, body, "NOT_FOUND"):
        inputs = read_inputs(FIELDS, body)
        require_inputs(inputs, "the key", "kind", "name")
        row, secret = await visit.call(keys.create_key, keys.KeySpec(**inputs))
    return visit.render("once.html", shown=secret, back="/ui/keys", name=row["name"])


async def ask_revoke(visit: Visit) -> Response:
    """Confirm the revocation of a key."""
    key = await visit.call(keys.get_key, visit.path["key"])
    about = (
        "This is the key of your own session: you will be logged out. This cannot be undone."
        if key["id"] == visit.caller.key_id
        else "Clients with this key lose access, and its sessions end. This cannot be undone."
    )
    action = f"/ui/keys/{quote_part(str(key['id']))}/revoke"
    title = f"Revoke {key['name']} ({key['masked']})?"
    return ask_first(visit, title, about, action=action, button="Revoke", back="/ui/keys", crumbs=_CRUMBS)


async def revoke_key(visit: Visit) -> Response:
    """Revoke a key."""
    await visit.read_form()
    await visit.call(keys.revoke_key, visit.path["key"])
    return redirect("/ui/keys")


def _list_fields(kind: str) -> Table:
    """Return the fields of a key of this kind; for an unknown kind all of them."""
    if kind not in KINDS:
        return FIELDS
    special = {name for names in _OF_KIND.values() for name in names}
    shown = {name: field for name, field in FIELDS.items() if name not in special or name in _OF_KIND.get(kind, ())}
    needed = (*_REQUIRED, *(("solver_id",) if kind == "solver" else ()))
    return {name: dataclasses.replace(field, required=True) if name in needed else field for name, field in shown.items()}


async def _make_form(visit: Visit, kind: str) -> Form:
    return Form(
        title="New key",
        about="The key is shown once, on the next page.",
        action="/ui/keys/new",
        button="Create key",
        back="/ui/keys",
        fields=_list_fields(kind),
        kinds=[(f"/ui/keys/new?kind={word}", name_key_kind(word).capitalize(), word == kind) for word in KINDS],
        choices={"kind": [(word, name_key_kind(word)) for word in KINDS], **await _list_choices(visit)},
        crumbs=_CRUMBS,
    )


async def _list_choices(visit: Visit) -> dict[str, list[tuple[str, str]]]:
    """Return ids and names of what a key can be limited to, by the field that names it."""
    return {
        "project_id": [(entry["id"], entry["name"]) for entry in (await visit.source.list_projects(None))["data"]],
        "solver_id": [
            (str(entry["id"]), str(entry["alias"])) for entry in (await list_solvers(visit.hub, visit.caller, limit=100))["data"]
        ],
        "agent_ids": [(entry["id"], entry["name"]) for entry in (await visit.call(list_agents, limit=100))["data"]],
    }
