"""`proctor keys`"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING

from proctor.cli.exit_codes import Exit
from proctor.cli.parser import add_flags, make_parser
from proctor.cli.show.output import Output
from proctor.cli.stored import add_database_flags, list_all, use_hub
from proctor.model.json_values import write_document
from proctor.report.words.neutral import to_one_line

if TYPE_CHECKING:
    from proctor.service.access.keys import Key
    from proctor.service.hub import Hub

_VERBS = {
    "create": "create a key and print it once",
    "list": "list keys, masked",
    "revoke": "revoke a key: it no longer gives access",
}
_REQUIRED_FLAG = {"project": "project", "solver": "solver", "run": "benchmark-run"}
_LIST_ADDRESS = {"project": "/api/projects", "solver": "/solvers", "benchmark-run": "/benchmark-runs"}
_KINDS = ("organization", "project", "solver", "run")


def run(arguments: list[str]) -> int:
    """Manage the keys of the service; returns the exit code."""
    parser = make_parser(
        "keys",
        "Create, list and revoke the keys of the service. Requires write access to the database.\n\n"
        + "\n".join(f"  {verb:<8} {does}" for verb, does in _VERBS.items())
        + "\n\nOnce an organization key was created, every request needs a key; on the local machine too.",
        [
            "proctor keys create --kind organization --name ci",
            "proctor keys create --kind project --project proj_01J... --agent agent_01J... --name n8n",
            "proctor keys list",
            "proctor keys revoke key_01J...",
        ],
    )
    parser.add_argument("verb", metavar="VERB", choices=tuple(_VERBS), help=", ".join(_VERBS))
    parser.add_argument("id", metavar="KEY", nargs="?", help="for revoke: the id of the key")
    parser.add_argument("--kind", choices=_KINDS, metavar="KIND", help=f"for create and list: {', '.join(_KINDS)}")
    parser.add_argument("--name", help="for create: a display name (default: the kind)")
    parser.add_argument("--project", metavar="ID", help="for project keys: the project")
    parser.add_argument("--agent", metavar="ID", action="append", help="for project keys: only this agent (repeatable; default: all)")
    parser.add_argument("--solver", metavar="ID", help="for solver keys: the solver")
    parser.add_argument("--benchmark-run", metavar="ID", help="for run keys: the benchmark run")
    parser.add_argument("--expires", metavar="ISO", help="for create: expiry time (default: never)")
    parser.add_argument(
        "--organization", metavar="NAME", help="the organization, by id or name; create adds a missing one (default: the first)"
    )
    add_flags(parser, "--format")
    add_database_flags(parser)
    options = parser.parse_args(arguments)
    if options.verb == "revoke" and options.id is None:
        parser.error("revoke needs the id of the key; `proctor keys list` shows it")
    if options.verb != "revoke" and options.id is not None:
        parser.error(f"unrecognized arguments: {options.id}")
    if options.verb == "create" and options.kind is None:
        parser.error(f"create needs --kind: {', '.join(_KINDS)}")
    flag = _REQUIRED_FLAG.get(options.kind)
    if options.verb == "create" and flag is not None and getattr(options, flag.replace("-", "_")) is None:
        parser.error(f"a {options.kind} key needs --{flag} ID; the service lists them at {_LIST_ADDRESS[flag]}")
    return {"create": _run_create, "list": _run_list, "revoke": _run_revoke}[options.verb](options)


def _run_create(options: argparse.Namespace) -> int:
    async def use(hub: Hub) -> tuple[Key, str, bool]:
        from proctor.service.access.keys import (  # an optional part, and slow to load
            KeySpec,
            create_key,
            find_local_caller,
            get_organization_caller,
        )

        caller = await get_organization_caller(hub, options.organization, create=options.kind == "organization")
        row, secret = await create_key(
            hub,
            caller,
            KeySpec(
                kind=options.kind,
                name=options.name if options.name is not None else options.kind,
                project_id=options.project,
                agent_ids=options.agent,
                solver_id=options.solver,
                benchmark_run_id=options.benchmark_run,
                expires_at=options.expires,
            ),
        )
        return row, secret, await find_local_caller(hub) is not None

    row, secret, is_open = use_hub(options, use)
    with Output(None) as output:
        if options.format == "json":
            output.write(write_document({**row, "key": secret}))
        else:
            output.write_text(f"{secret}\n")
    print(f"{row['id']}: copy it now, it is shown only once", file=sys.stderr)
    if is_open:
        print(
            "there is no organization key yet: a service on this machine stays open to everybody on it\n"
            "  to close it: proctor keys create --kind organization --name NAME",
            file=sys.stderr,
        )
    return Exit.PASSED


def _run_list(options: argparse.Namespace) -> int:
    async def use(hub: Hub) -> list[Key]:
        from proctor.service.access.keys import get_organization_caller, list_keys  # an optional part, and slow to load

        caller = await get_organization_caller(hub, options.organization)
        chosen = {"kind": options.kind, "project_id": options.project, "solver_id": options.solver}
        return await list_all(partial(list_keys, hub, caller, **chosen))

    listed = use_hub(options, use)
    with Output(None) as output:
        if options.format == "json":
            output.write(write_document(listed))
            return Exit.PASSED
        for key in listed:
            scope = " ".join(
                [place for place in (key["project_id"], key["solver_id"], key["benchmark_run_id"]) if place] + (key["agent_ids"] or [])
            )
            used = f"used {key['last_used_at']}" if key["last_used_at"] else "never used"
            state = f"  [until {key['expires_at']}]" if key["expires_at"] else ""
            if key["revoked_at"]:
                state = f"  [revoked {key['revoked_at']}]"
            columns = (key["id"], f"{key['kind']:<12}", f"{key['masked']:<16}", to_one_line(key["name"], 40), scope, used)
            output.write_text("  ".join(word for word in columns if word) + state + "\n")
    if not listed:
        print("no keys", file=sys.stderr)
    return Exit.PASSED


def _run_revoke(options: argparse.Namespace) -> int:
    async def use(hub: Hub) -> Key:
        from proctor.service.access.keys import get_organization_caller, revoke_key  # an optional part, and slow to load

        return await revoke_key(hub, await get_organization_caller(hub, options.organization), options.id)

    row = use_hub(options, use)
    print(f"{row['id']} ({row['masked']}) is revoked since {row['revoked_at']}")
    return Exit.PASSED
