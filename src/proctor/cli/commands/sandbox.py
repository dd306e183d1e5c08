"""`proctor sandbox`"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.cli.exit_codes import Exit
from proctor.cli.parser import add_flags, make_parser
from proctor.cli.show.output import Output
from proctor.cli.stored import add_database_flags, list_all, use_hub
from proctor.errors import InputError
from proctor.model.json_values import NotJson, read_json, write_document
from proctor.report.words.neutral import to_one_line

if TYPE_CHECKING:
    from proctor.service.access.callers import Caller
    from proctor.service.hub import Hub

_VERBS = {
    "up": "make systems of an environment, or one of a type, and print how to reach them; tokens are not shown again",
    "show": "a playground or a sandbox: whether it is active, and where",
    "events": "what happened in a sandbox, or in all of a playground, oldest first",
    "diff": "what differs in a sandbox, or in all of a playground, from how it began",
    "down": "end a playground or a sandbox; events and diff stay",
}
_PLAYGROUND, _ENVIRONMENT = "pg_", "env_"
_MARKS = {"added": "+", "changed": "~", "removed": "-"}


def run(arguments: list[str]) -> int:
    """Try simulated systems by hand; returns the exit code."""
    parser = make_parser(
        "sandbox",
        "Try simulated systems by hand, on the database of the service. `proctor serve` answers requests to them.\n\n"
        + "\n".join(f"  {verb:<8} {does}" for verb, does in _VERBS.items()),
        [
            "proctor sandbox up fhir --seed patients.json",
            "proctor sandbox up env_01J...",
            "proctor sandbox events sb_01J...",
            "proctor sandbox down sb_01J...",
        ],
    )
    parser.add_argument("verb", metavar="VERB", choices=tuple(_VERBS), help=", ".join(_VERBS))
    parser.add_argument(
        "what", metavar="WHAT", help="for up: an environment, or a type such as fhir; else the id of a sandbox or playground"
    )
    parser.add_argument("--seed", metavar="FILE", help="for up with a type: JSON with the initial state of the system")
    add_flags(parser, "--organization", "--format")
    add_database_flags(parser)
    options = parser.parse_args(arguments)
    if options.seed is not None and (options.verb != "up" or options.what.startswith(_ENVIRONMENT)):
        parser.error("--seed is for up with a type; the systems of an environment are filled with its datasets")
    seed = _read_seed(options.seed)

    async def use(hub: Hub) -> Any:
        from proctor.service.access.keys import get_organization_caller  # an optional part, and slow to load

        return await _do(hub, await get_organization_caller(hub, options.organization), options.verb, options.what, seed)

    document = use_hub(options, use)
    with Output(None) as output:
        if options.format == "json":
            output.write(write_document(document))
        else:
            several = options.what.startswith(_PLAYGROUND)
            output.write_text("".join(f"{line}\n" for line in _describe(options.verb, document, several=several)))
    if options.verb == "up":
        print(f"to end it: proctor sandbox down {document['id']}", file=sys.stderr)
    return Exit.PASSED


def _read_seed(name: str | None) -> Any:
    if name is None:
        return None
    try:
        return read_json(Path(name).read_bytes())
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from None
    except NotJson as error:
        raise InputError(f"{name}: not JSON: {error}") from None


async def _do(hub: Hub, caller: Caller, verb: str, what: str, seed: Any) -> Any:
    from proctor.service.verification.authoring import environments  # an optional part, and slow to load
    from proctor.service.verification.sandboxes import playgrounds  # an optional part, and slow to load
    from proctor.service.verification.sandboxes import records as sandbox_records  # an optional part, and slow to load

    is_playground = what.startswith(_PLAYGROUND)
    match verb:
        case "up":
            if what.startswith(_ENVIRONMENT):
                return await playgrounds.create_playground(hub, caller, {"environment_id": what})
            config = None if seed is None else {"seed": seed}
            simulator = await environments.create_simulator(hub, caller, {"name": f"{what} by hand", "type": what, "config": config})
            return await playgrounds.create_sandbox(hub, caller, {"simulator_id": simulator["id"]})
        case "show":
            return await (playgrounds.get_playground if is_playground else playgrounds.get_sandbox)(hub, caller, what)
        case "down":
            return await (playgrounds.tear_down_playground if is_playground else playgrounds.tear_down_sandbox)(hub, caller, what)
        case "diff":
            parts = [await sandbox_records.diff_sandbox(hub, caller, id) for id in await _list_sandboxes(hub, caller, what)]
            return parts[0] if not is_playground else {word: [entry for part in parts for entry in part[word]] for word in _MARKS}
        case _:
            events: list[dict[str, Any]] = []
            for id in await _list_sandboxes(hub, caller, what):
                # The service lists the newest first, page by page.
                events += (await list_all(partial(sandbox_records.list_sandbox_events, hub, caller, id)))[::-1]
            return sorted(events, key=lambda event: event["created_at"]) if is_playground else events


async def _list_sandboxes(hub: Hub, caller: Caller, what: str) -> list[str]:
    """Return the running sandboxes of a playground, or the named one."""
    from proctor.service.verification.sandboxes.playgrounds import get_playground  # an optional part, and slow to load
    from proctor.simulators.seeds import find_kind

    if not what.startswith(_PLAYGROUND):
        return [what]
    sandboxes = (await get_playground(hub, caller, what))["sandboxes"]
    return [sandbox["id"] for sandbox in sandboxes if find_kind(sandbox["type"]) is not None]


def _describe(verb: str, document: Any, *, several: bool) -> list[str]:
    """Return the events as lines; with several systems each line names its system."""
    if verb == "events":
        return [_describe_event(event, f"{event['system']:<8} " if several else "") for event in document] or ["nothing has happened"]
    if verb == "diff":
        marked = [(mark, entry) for word, mark in _MARKS.items() for entry in document[word]]
        lines = [f"{mark} {entry['system'] + '/' if several else ''}{to_one_line(entry['place'])}" for mark, entry in marked]
        return lines or ["nothing differs from how it began"]
    lines = [f"{document['id']}  {document['status']}"] if "sandboxes" in document else []
    for sandbox in document.get("sandboxes", [document]):
        lines.append(f"{sandbox['id']}  {sandbox['status']}")
        lines += [f"  {name}  {value}" for name, value in (sandbox["credentials"] or {}).items()]
    return lines


def _describe_event(event: dict[str, Any], system: str) -> str:
    if event["type"] == "step":
        error = f"  {to_one_line(event['error'])}" if event["error"] else ""
        return f"{event['created_at']}  {system}step  {to_one_line(event['step'], 60)}{error}"
    return f"{event['created_at']}  {system}{event['status']}  {event['method']:<6} {to_one_line(event['path'])}"
