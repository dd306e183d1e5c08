"""What would happen on the word of a suite: the processes, tools, addresses, files and variables that it names, or that it brings with it.

A model or an agent that a suite describes is named by its provider, whatever else is written about it: with it go the provider's address
and the variables that hold its key and another address. An MCPLab suite brings agents, servers and a judge out of the files of its
workspace, and `.env` files with variables.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from proctor.actions.mcplab.files import list_variable_files, root_of
from proctor.actions.mcplab.plan import Entry
from proctor.actions.trust.trust import Named, Trust, make_printable, named_in, named_in_settings
from proctor.actions.workspace.models import list_variables
from proctor.formats.workspace_file.workspace import Section, Workspace
from proctor.llm.anthropic import DEFAULT_BASE as ANTHROPIC
from proctor.llm.openai import DEFAULT_BASE as OPENAI
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.lazy_cases import may_have
from proctor.model.show import show

_ADDRESSES = {"openai": OPENAI, "openai_responses": OPENAI, "anthropic": ANTHROPIC}


def name_target(target: str | None, workspace: Workspace) -> list[Named]:
    """Return what an untrusted suite would cause if the chosen target were driven: by itself, and by its model."""
    name, section = workspace.find_target(target)
    found: list[Named] = []
    if not section.trusted:
        found.extend(named_in(section, f"targets.{name}"))
    # As `model_settings` chooses it: where none is named, the only one there is.
    model = section.find_text("model") or (next(iter(workspace.models)) if len(workspace.models) == 1 else None)
    described = workspace.models.get(model) if model is not None and section.find_text("type") == "mcp_agent" else None
    if described is not None and not described.trusted:
        found.extend(_name_model(described, f"models.{model}"))
    # One without any known name may still be untrusted.
    return found or ([] if section.trusted else [Named("uses", f"the target {show(name)}", f"targets.{name}")])


def name_judge(suite: Suite, workspace: Workspace, chosen: str | None, trust: Trust) -> list[Named]:
    """Return what an untrusted suite would cause through its judge.

    `chosen` is the model that the command names for the judge.
    """
    if trust.takes(suite):
        return []
    if suite.dialect == "mcplab" and chosen is None and workspace.judge is None:
        return _name_mcplab_judge(suite)
    found: list[Named] = []
    section = workspace.judge
    own = section is not None and not section.trusted
    if own and section is not None:
        found.extend(named for named in named_in(section, "judge") if chosen is None or not named.where.startswith("judge.model"))
    for name in [chosen] if chosen is not None else _list_models(section):
        described = workspace.models.get(name)
        if described is not None and not described.trusted:
            found.extend(_name_model(described, f"models.{name}"))
        elif described is None and own and chosen is None:
            found.extend(_name_provider(name, "judge.model"))
    return found


def name_users(suite: Suite, workspace: Workspace) -> list[Named]:
    """Return what would happen on the word of a suite alone, were models that it describes to play its simulated users."""
    found: list[Named] = []
    for name in dict.fromkeys(case.user.model for case in suite.cases if case.user is not None and case.user.model is not None):
        described = workspace.models.get(name)
        if described is not None and not described.trusted:
            found.extend(_name_model(described, f"models.{name}"))
    return found


def name_agents(suite: Suite, *, judged: bool) -> list[Named]:
    """Return what one MCPLab config would cause through its agents and, if it is `judged`, through its judge."""
    settings = suite.settings
    found = [named for agent in settings.get("agents") or () for named in _name_agent(agent)]
    found += named_in_settings({"servers": settings.get("servers")}, "")
    for case in suite.cases:
        found += named_in_settings({"attachments": case.settings.get("attachments")}, f"scenarios.{make_printable(case.id)}")
    found += _name_variable_files(root_of(suite))
    if judged:
        found += _name_mcplab_judge(suite)
    # One without any known name may still be untrusted.
    return found or [Named("uses", "the agents of the suite", "agents")]


def name_direct_calls(suite: Suite, trust: Trust) -> list[tuple[Suite, list[Named]]]:
    """Return the tools that cases of suites which are not trusted call themselves, on whatever servers are driven."""
    # Of several suites each case knows its file.
    joined = suite.path is not None and Path(suite.path).is_dir()
    found: dict[str | None, list[Named]] = {}
    for case in suite.cases if may_have(suite.cases, "settings") else ():
        calls: Json = case.settings.get("direct_calls")
        file = case.origin.file if joined else suite.path
        # A case whose file is missing is not trusted.
        if not calls or trust.takes_file(file if file is not None and Path(file).is_file() else None):
            continue
        for number, call in enumerate(calls if isinstance(calls, list) else [calls]):
            tool = f"{call.get('tool')} of the server {call.get('server')}" if isinstance(call, dict) else show(call)
            found.setdefault(file, []).append(Named("calls the tool", tool, f"cases.{case.id}.settings.direct_calls[{number}]"))
    return [(msgspec.structs.replace(suite, path=file), named) for file, named in found.items()]


def _name_mcplab_judge(suite: Suite) -> list[Named]:
    from proctor.actions.mcplab.judge import judge_agent  # only where something is judged

    agent = judge_agent(suite)
    return [] if agent is None else [*_name_agent(agent), *_name_variable_files(root_of(suite))]


def _name_agent(agent: Entry) -> list[Named]:
    place = f"agents.{make_printable(str(agent.get('id')))}"
    return [*_name_provider(agent.get("provider"), f"{place}.provider"), *named_in_settings(agent, place)]


def _name_variable_files(root: Path) -> Iterable[Named]:
    return [Named("reads the file", make_printable(str(file)), "variables of the workspace") for file in list_variable_files(root)]


def _name_model(section: Section, place: str) -> list[Named]:
    """Return what a model names that is described under `models`."""
    elsewhere = section.node.get("base_url") is not None
    keyed = section.node.get("api_key") is not None
    return [
        *_name_provider(section.find_text("provider"), f"{place}.provider", elsewhere=elsewhere, keyed=keyed),
        *named_in(section, place),
    ]


def _name_provider(name: Json, where: str, *, elsewhere: bool = False, keyed: bool = False) -> list[Named]:
    """Return what a request to `provider` or `provider/name` uses, unless address and key are given `elsewhere`."""
    if not isinstance(name, str):
        return []
    provider = name.partition("/")[0].strip().lower()
    own = _ADDRESSES.get(provider)
    found = [Named("sends to", f"the provider of {show(name)}" + (f", {own}" if own is not None and not elsewhere else ""), where)]
    keys, addresses = list_variables(provider)
    # As `fill_from_environment` does it: a key of the environment goes to no address from a file.
    read = () if elsewhere else (*(() if keyed else keys), *addresses)
    return found + [Named("reads the variable", variable, where) for variable in read]


def _list_models(section: Section | None) -> list[str]:
    member = section.node.get("model") if section is not None else None
    named = () if member is None else (member, *member.items())
    return [one.value for one in named if isinstance(one.value, str)]
