"""`proctor generate traces|tools|workflow|openapi SOURCE...`"""

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from proctor.actions.generating.accept import is_frozen
from proctor.actions.generating.generate_traces import Written, describe_rest, group_files, group_run, propose_cases
from proctor.actions.generating.pending_file import PENDING
from proctor.actions.workspace.run_history import find_home
from proctor.cli.exit_codes import Exit
from proctor.cli.parser import add_flags, make_parser, parse_positive
from proctor.cli.stored import add_database_flags, choose_run_not_file, use_hub
from proctor.errors import InputError
from proctor.generation.trace_cases import LEAST_RUNS, Generated, TraceGrouping
from proctor.generation.trace_paths import EffectNames
from proctor.model.evidence import Json
from proctor.model.show import nearest
from proctor.report.words.wording import count_noun

_MOST_TRACES = 10_000
_MOST_LISTED = 200


def run(arguments: list[str]) -> int:
    """Write proposed cases; returns the exit code."""
    parser = _make_parser()
    options = parser.parse_args(arguments)
    if (options.from_service is None) != bool(options.source) or (options.from_service is not None and options.kind != "traces"):
        parser.error("name a SOURCE, or for traces --from-service PROJECT")
    if options.model is not None and options.kind != "traces":
        parser.error("--model is for traces")
    if is_frozen():
        raise InputError("CI is set, so no proposals are written; generate cases on your machine and commit them")
    if options.kind != "traces":
        documents = _generate_from_document(options)
        notes = ["no branch to cover: propose cases of its traces instead"] if options.kind == "workflow" and not documents else []
        return _propose(options, documents, notes, f"{options.source[0]}, {count_noun(len(documents), 'case')}")
    proposed = _generate_from_traces(options)
    notes = describe_rest(proposed)
    documents = [case.document for case in proposed.cases]
    if options.model is not None:
        # Models need an HTTP client, which takes a moment to load.
        from proctor.actions.generating.ask_model import extend_cases, open_model

        model = open_model(options.model, find_home(options.home), os.environ)
        documents, more = asyncio.run(extend_cases(proposed.cases, model))
        notes += more
    return _propose(options, documents, notes, f"{count_noun(proposed.runs, 'trace')}, {count_noun(len(proposed.cases), 'group')}")


def _generate_from_document(options: argparse.Namespace) -> Sequence[dict[str, Json]]:
    from proctor.actions.generating import generate_documents as generate  # only for documents, since it imports the MCP client

    if len(options.source) > 1:
        raise InputError(f"generate {options.kind}: name one source")
    source = options.source[0]
    if options.kind == "tools":
        return generate.generate_from_tools(source, options.server, find_home(options.home))
    return (generate.generate_from_workflow if options.kind == "workflow" else generate.generate_from_openapi)(Path(source))


def _generate_from_traces(options: argparse.Namespace) -> Generated:
    effects = EffectNames(frozenset(_split(options.reads)), frozenset(_split(options.changes)))
    if options.from_service is not None:
        return _generate_from_service(options, effects)
    if len(options.source) == 1 and options.source[0] != "-" and not Path(options.source[0]).exists():
        home = find_home(options.home)
        return group_run(home, choose_run_not_file(home, options.source[0], quiet=options.quiet), effects=effects, least=options.least)
    return group_files(options.source, format=options.evidence_format, effects=effects, least=options.least)


def _generate_from_service(options: argparse.Namespace, effects: EffectNames) -> Generated:
    """Return the cases of the traces of one agent in the database of the service."""
    # The service is optional and takes a second to load.
    from proctor.service.access.agents import list_agents
    from proctor.service.access.callers import Caller
    from proctor.service.access.keys import get_organization_caller
    from proctor.service.access.projects import list_projects
    from proctor.service.hub import Hub
    from proctor.service.runs.proposals import TracesToGroup, group_stored_traces

    async def group(hub: Hub) -> Generated:
        caller: Caller = await get_organization_caller(hub, options.organization)
        project = _choose(await list_projects(hub, caller, limit=_MOST_LISTED), options.from_service, "project")
        agents = await list_agents(hub, caller, project_id=project, limit=_MOST_LISTED)
        agent = _choose(agents, options.agent, "agent") if options.agent or len(agents["data"]) != 1 else agents["data"][0]["id"]
        spec = TracesToGroup(project_id=project, agent_id=agent, since=options.since, limit=options.limit)
        grouping = (await group_stored_traces(hub, caller, spec, effects)).get(agent) or TraceGrouping(effects)
        return grouping.finish(least=options.least)

    return use_hub(options, group, migrating=False)


def _choose(page: Mapping[str, Json], wanted: str | None, noun: str) -> str:
    names: dict[str, str] = {agent["name"]: agent["id"] for agent in page["data"]}
    agent_id = wanted if wanted in names.values() else names.get(wanted or "")
    if agent_id is None:
        close = nearest(wanted or "", names)
        problem = f"there is no {noun} {wanted!r}" if wanted else f"name one {noun} with --{noun}: cases of several have less in common"
        raise InputError(f"{problem}; {'nearest' if close else 'there are'}: {', '.join(close or list(names)[:10]) or 'none'}")
    return agent_id


def _propose(options: argparse.Namespace, documents: Sequence[dict[str, Json]], notes: Sequence[str], source: str) -> int:
    output = Path(options.output) if options.output else None
    if output is not None and not output.name.endswith(f"{PENDING}.yaml"):
        raise InputError(f"--output {options.output}: expected NAME{PENDING}.yaml, so that `proctor accept` knows the suite")
    written: Written = propose_cases(Path(options.suite), documents, notes, output=output)
    new = [proposal for proposal in written.proposals if proposal.kind == "new"]
    changed = [proposal for proposal in written.proposals if proposal.kind == "changed"]
    if options.format == "json":
        document = {
            "schema": "proctor.proposals/1",
            "file": str(written.path),
            "proposals": [{"case": proposal.case, "kind": proposal.kind, "document": proposal.document} for proposal in written.proposals],
            "notes": list(notes),
        }
        print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        return Exit.PASSED if documents else Exit.NOTHING
    if written.replaced:
        names = ", ".join(written.replaced[:5])
        notes = [
            *notes,
            f"replaced, {count_noun(len(written.replaced), 'earlier proposal')}: {names}{', …' if written.replaced[5:] else ''}",
        ]
    if not options.quiet:
        print("\n".join(notes), end="\n" if notes else "", file=sys.stderr)
    if not documents:
        print(f"{source}: no case can be proposed", file=sys.stderr)
        return Exit.NOTHING
    if not written.proposals:
        print(f"{source}: {options.suite} has all of it already, or it was rejected")
        return Exit.PASSED
    claims = sum(len(proposal.document.get("expect", ())) for proposal in new) + sum(len(proposal.added) for proposal in changed)
    print(f"{source}: {len(new)} new and {count_noun(len(changed), 'changed case')}, {count_noun(claims, 'claim')}, in {written.path}")
    # `proctor accept` finds the files in these folders by itself.
    argument = "" if written.path.parent in (Path(), Path("suites")) else f"{written.path} "
    print(f"review them: proctor accept {argument}--review")
    return Exit.PASSED


def _split(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _make_parser() -> argparse.ArgumentParser:
    parser = make_parser(
        "generate",
        "Propose cases from recorded runs, the tools of an MCP server, a workflow or an OpenAPI document. No model is called unless "
        "--model names one, and the same input gives the same cases. "
        "The proposals are written next to the suite, as suite.pending.yaml; `proctor accept` moves them into it.",
        [
            "proctor generate traces traces/",
            "proctor generate traces latest --suite suites/refunds.yaml",
            "proctor generate traces history/traces --suite suites/refunds.yaml",
            "proctor generate traces --from-service shop --agent refunds --since 2026-11-16",
            "proctor generate traces week.jsonl --reads export_report --changes ping",
            "proctor generate tools 'python shop_server.py' --server shop",
            "proctor generate workflow refunds.n8n.json",
            "proctor generate openapi openapi.yaml",
        ],
    )
    parser.add_argument("kind", choices=("traces", "tools", "workflow", "openapi"), help="what the source is")
    parser.add_argument(
        "source",
        metavar="SOURCE",
        nargs="*",
        help="traces: files (JSON, JSON lines, OTLP, Parquet), folders, - for standard input, or a stored run; "
        "tools: a tool list, or a server as in `proctor doctor`; "
        "workflow: a file of n8n or Flowise; openapi: a file",
    )
    parser.add_argument("--suite", metavar="SUITE", default="suite.yaml", help="the suite that the cases are for (default: %(default)s)")
    parser.add_argument("--output", metavar="FILE", help="the file for the proposals, NAME.pending.yaml (default: that of SUITE)")
    parser.add_argument(
        "--least", type=parse_positive, default=LEAST_RUNS, metavar="N", help="traces of a path that make a case (default: %(default)s)"
    )
    parser.add_argument("--reads", metavar="TOOLS", default="", help="tools that only read, if their names do not show it")
    parser.add_argument("--changes", metavar="TOOLS", default="", help="tools with effects, if their names do not show it")
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="traces: a model that words inputs as other people and proposes claims: one of `models` in proctor.yaml, or provider/name. "
        "Only claims that hold and detect a planted fault stay",
    )
    parser.add_argument("--server", metavar="ID", help="tools: the server's id in the target (default: its name, else server)")
    add_flags(parser, "--evidence-format", "--format")
    parser.add_argument("--quiet", action="store_true", help="no notes on standard error")
    service = parser.add_argument_group("traces of the service")
    service.add_argument("--from-service", metavar="PROJECT", help="instead of SOURCE: the stored traces of a project, by name or id")
    service.add_argument("--agent", metavar="NAME", help="its agent, by name or id (default: the only one)")
    service.add_argument("--since", metavar="TIME", help="only traces received from then on, such as 2026-11-16T09:00Z")
    service.add_argument(
        "--limit", type=parse_positive, default=_MOST_TRACES, metavar="N", help="newest traces that are read (default: %(default)s)"
    )
    service.add_argument("--organization", metavar="NAME", help="the organization of the project (default: default)")
    add_database_flags(service)
    return parser
