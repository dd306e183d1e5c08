"""Defines what only a trusted suite may do, and which variables a run may use. A suite may come from anywhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Literal

import msgspec

from proctor.actions.mcplab.files import find_suite_root, list_variable_files
from proctor.actions.mcplab.plan import Entry
from proctor.actions.workspace.models import list_variables
from proctor.actions.workspace.run_history import find_home, get_workspace_folder, is_workspace_folder
from proctor.actions.workspace.settings import workspace_file
from proctor.actions.workspace.suites import TRUST_VARIABLE, is_trust_granted
from proctor.errors import InputError
from proctor.formats.text.located import Located
from proctor.formats.workspace_file import Section, Workspace
from proctor.llm.anthropic import DEFAULT_BASE as ANTHROPIC
from proctor.llm.openai import DEFAULT_BASE as OPENAI
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.lazy_cases import may_have
from proctor.model.show import escape_unseen, shorten, show
from proctor.patterns.globs import compile_glob, matches_glob
from proctor.report.words.wording import count_noun
from proctor.sources.dotenv import DOTENV_FILE, with_dotenv

Doing = Literal["reading", "running"]

_MOST_LISTED = 40
"""Things of one kind that are listed one by one."""
_WORST_FIRST = ("starts", "imports", "calls the tool", "sends to", "reads the variable", "reads the file")
_LONGEST = 160
# `$${` is a literal `${` and reads nothing.
_REFERENCE = re.compile(r"(?<!\$)\$\{([^}]*)\}")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FILES = frozenset(("path", "file", "evidence", "prompt", "examples", "cwd", "folder"))


class Named(msgspec.Struct, frozen=True):
    """One thing a suite names."""

    does: str
    """What would happen: one of `_WORST_FIRST`, or `uses`."""
    what: str
    where: str


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """Which suites are trusted."""

    doing: Doing = "reading"
    granted: bool = False
    folder: Path
    listed: tuple[str, ...] = ()
    """Patterns of files, from the working folder, that its workspace file trusts."""

    def takes(self, suite: Suite | None) -> bool:
        """Return whether this suite may describe processes, addresses and models; suites written in Python are trusted."""
        if self.granted or suite is None:
            return True
        if suite.dialect != "mcplab":
            return self.takes_file(suite.path)
        from proctor.actions.mcplab.files import list_configs, list_workspace_files  # only MCPLab's own suites need it

        # Agents and servers come from other files than the config, any of which may be a link out of the folder.
        configs = list_configs(suite)
        return all(self.takes_file(each.path) and all(map(self.holds, list_workspace_files(each))) for each in configs)

    def takes_file(self, path: str | Path | None) -> bool:
        """Return whether the suite in this file may describe processes, addresses and models; False without a file."""
        if self.granted:
            return True
        if path is None or not self.holds(path):
            return False
        relative_path = Path(path).resolve().relative_to(self.folder.resolve()).as_posix()
        return self.doing == "running" or any(matches_glob(compile_glob(pattern), relative_path) for pattern in self.listed)

    def holds(self, path: str | Path) -> bool:
        """Whether a file is in the working folder, after resolving links."""
        return Path(path).resolve().is_relative_to(self.folder.resolve())

    def may_read(self, path: Path) -> bool:
        """Whether a file that comes with a suite may be read."""
        return self.granted or self.holds(path)


def trust_for(
    doing: Doing, *, granted: bool | None = None, home: Path | None = None, environment: Mapping[str, str] | None = None
) -> Trust:
    """Return the trust settings; without a flag the environment decides."""
    granted = is_trust_granted(granted, environment)
    # The folder of the nearest workspace file, else the current one.
    folder = find_home(None).parent
    listed = workspace_file(home if home is not None else find_home(None)).trust
    return Trust(doing=doing, granted=granted, folder=folder, listed=listed)


def refuse_untrusted(named_by_suite: Iterable[tuple[Suite, Iterable[Named]]], trust: Trust) -> None:
    """Raise `InputError` with everything that untrusted suites name, if anything."""
    by_place: dict[str, tuple[Suite, dict[Named, None]]] = {}
    for suite, effects in named_by_suite:
        _, known = by_place.setdefault(suite.path or suite.name, (suite, {}))
        known.update(dict.fromkeys(effects))
    refused = [_describe_untrusted(suite, [*effects], trust) for suite, effects in by_place.values() if effects]
    if refused:
        raise InputError(
            "\n".join(refused)
            + f"\n  Describe in proctor.yaml what you know yourself, or, if you trust the author of the suite: --trust ({TRUST_VARIABLE}=1)"
        )


def _describe_untrusted(suite: Suite, effects: list[Named], trust: Trust) -> str:
    lines: list[str] = []
    ranks = {does: rank for rank, does in enumerate(_WORST_FIRST)}
    effects.sort(key=lambda effect: ranks.get(effect.does, len(ranks)))
    width = max(len(effect.does) for effect in effects)
    # A long list of one kind must not hide the others.
    for _, of_kind in groupby(effects, key=lambda effect: effect.does):
        alike = list(of_kind)
        for effect in alike[:_MOST_LISTED]:
            lines.append(f"  {effect.does:<{width}}  {make_printable(effect.what)}  ({make_printable(effect.where)})")
        if len(alike) > _MOST_LISTED:
            lines.append(f"  {alike[0].does:<{width}}  {len(alike) - _MOST_LISTED} more")
    name = f'"{make_printable(suite.path)}"' if suite.path is not None else f"{suite.name[:_LONGEST]!r}, which has no file,"
    return (
        f"the suite {name} is not trusted with what it names; nothing was started and nothing was sent. It names:\n"
        + "\n".join(lines)
        + f"\n  {_explain_untrusted(suite, trust)}"
    )


def _explain_untrusted(suite: Suite, trust: Trust) -> str:
    if trust.doing == "reading":
        reason = "Reading recorded evidence uses only models and judges that proctor.yaml describes, the command names, or the environment."
        is_inside = suite.path is not None and trust.holds(suite.path)
        place = f"proctor.yaml of {make_printable(str(trust.folder))}"
        return f"{reason}\n  To allow it permanently, list its file under `trust:` in {place}" if is_inside else reason
    if suite.path is None:
        return "Only suites in files of the working folder are run without asking."
    return f"It is not in the working folder {make_printable(str(trust.folder))}, or is reached over a link that leads out of it."


def list_effects_in_settings(settings: Mapping[str, Json], place: str) -> Iterator[Named]:
    """Return the same as `list_effects`, for settings of any shape."""
    yield from list_effects(Section.of(settings, trusted=False).node, place)


def list_effects(node: Located, place: str) -> Iterator[Named]:
    """Yield the processes, code, addresses, files and variables that one entry of a suite names."""
    members = dict(node.members())
    command = members.get("command")
    if command is not None:
        rest = members.get("args")
        words = [*(list(command.items()) or [command]), *(rest.items() if rest is not None else ())]
        yield Named("starts", make_printable(" ".join(str(word.value) for word in words)), f"{place}.command")
    for key, member in members.items():
        inner = f"{place}.{key}" if place else key
        if key == "function" and isinstance(member.value, str):
            yield Named("imports", make_printable(member.value), inner)
        if key in _FILES:
            files = [file.value for file in (member, *member.items()) if isinstance(file.value, str)]
            yield from (Named("reads the file", make_printable(file), inner) for file in files)
        # MCPLab refers to the variables of a login by bare name.
        if (key == "env" or key.endswith("_env")) and isinstance(member.value, str):
            yield Named("reads the variable", make_printable(member.value), inner)
        yield from list_effects(member, inner)
    for index, item in enumerate(node.items()):
        yield from list_effects(item, f"{place}[{index}]")
    if isinstance(node.value, str):
        if _ADDRESS.match(node.value.strip()):
            yield Named("sends to", make_printable(node.value), place)
        for name in _REFERENCE.findall(node.value):
            yield Named("reads the variable", make_printable(name), place)


def make_printable(text: str) -> str:
    """Return a text of the suite without control characters."""
    # They could hide on a terminal what an untrusted suite names.
    return escape_unseen(shorten(text, _LONGEST))


_ADDRESSES = ("_BASE_URL", "_ENDPOINT", "_API_BASE", "_HOST", "_PROXY")
_OWN = "PROCTOR_"


def list_dotenv_files(home: Path, trust: Trust) -> list[Path]:
    """Return the `.env` files of the working directory and of the workspace, as far as they may be read."""
    places = dict.fromkeys(folder.resolve() for folder in (Path.cwd(), get_workspace_folder(home)))
    readable = [place / DOTENV_FILE for place in places if trust.doing == "running" or trust.granted or is_workspace_folder(place)]
    return [file for file in readable if file.is_file() and trust.may_read(file)]


def read_variables(environment: Mapping[str, str], home: Path, trust: Trust, announce: Callable[[str], None]) -> dict[str, str]:
    """Return the environment with the variables of `.env` files added; variables that are set win. Raises `InputError`.

    Addresses and the choice of a judge are ignored: the author of such a file could send a key of the environment to their own server.
    """
    known = dict(environment)
    for file in list_dotenv_files(home, trust):
        new = {name: value for name, value in with_dotenv(known, [file]).items() if name not in known}
        # Case-insensitive: HTTP clients also read `http_proxy`.
        refused = [name for name in new if name.upper().endswith(_ADDRESSES) or name.upper().startswith(_OWN)]
        accepted = {name: value for name, value in new.items() if name not in refused}
        if accepted:
            announce(f"{count_noun(len(accepted), 'variable')} taken from {file}; what the environment has counts more")
        if refused:
            announce(f"not taken from {file}: {', '.join(refused[:5])}; addresses come from the environment or proctor.yaml")
        known |= accepted
    return known


# Lists what an untrusted suite would cause: the processes, tools, addresses, files and variables that it names or includes.
# A model or an agent that a suite describes is listed by its provider, together with the provider's address and the variables of its key
# and of another address. An MCPLab suite includes agents, servers and a judge from the files of its workspace, and `.env` files.

_ADDRESS_KEYS = {"openai": OPENAI, "openai_responses": OPENAI, "anthropic": ANTHROPIC}


def name_target(target: str | None, workspace: Workspace) -> list[Named]:
    """Return what an untrusted suite would cause if the chosen target were driven, including its model."""
    name, section = workspace.find_target(target)
    effects: list[Named] = []
    if not section.trusted:
        effects.extend(list_effects(section.node, f"targets.{name}"))
    # Like `model_settings`: if none is named, the only one there is.
    model = section.find_text("model") or (next(iter(workspace.models)) if len(workspace.models) == 1 else None)
    if model is not None and section.find_text("type") == "mcp_agent":
        effects += _name_model(workspace, model)
    # One without any known name may still be untrusted.
    return effects or ([] if section.trusted else [Named("uses", f"the target {show(name)}", f"targets.{name}")])


def name_judge(suite: Suite, workspace: Workspace, chosen: str | None, trust: Trust) -> list[Named]:
    """Return what an untrusted suite would cause through its judge.

    `chosen` is the model that the command names for the judge.
    """
    if trust.takes(suite):
        return []
    if suite.dialect == "mcplab" and chosen is None and workspace.judge is None:
        return _name_mcplab_judge(suite)
    effects: list[Named] = []
    section = workspace.judge
    is_untrusted = section is not None and not section.trusted
    if is_untrusted and section is not None:
        effects.extend(each for each in list_effects(section.node, "judge") if chosen is None or not each.where.startswith("judge.model"))
    for name in [chosen] if chosen is not None else _list_models(section):
        effects += _name_model(workspace, name)
        if name not in workspace.models and is_untrusted and chosen is None:
            effects += _name_provider(name, "judge.model")
    return effects


def name_users(suite: Suite, workspace: Workspace) -> list[Named]:
    """Return what an untrusted suite would cause through the models of its simulated users."""
    names = dict.fromkeys(case.user.model for case in suite.cases if case.user is not None and case.user.model is not None)
    return [effect for name in names for effect in _name_model(workspace, name)]


def name_agents(suite: Suite, *, judged: bool) -> list[Named]:
    """Return what one MCPLab config would cause through its agents and, if it is `judged`, through its judge."""
    settings = suite.settings
    effects = [effect for agent in settings.get("agents") or () for effect in _name_agent(agent)]
    effects += list_effects_in_settings({"servers": settings.get("servers")}, "")
    for case in suite.cases:
        effects += list_effects_in_settings({"attachments": case.settings.get("attachments")}, f"scenarios.{make_printable(case.id)}")
    effects += _name_variable_files(find_suite_root(suite))
    if judged:
        effects += _name_mcplab_judge(suite)
    # One without any known name may still be untrusted.
    return effects or [Named("uses", "the agents of the suite", "agents")]


def name_direct_calls(suite: Suite, trust: Trust) -> list[tuple[Suite, list[Named]]]:
    """Return the tools that cases of untrusted suites call directly, on any server."""
    # In a combined suite, each case knows its file.
    joined = suite.path is not None and Path(suite.path).is_dir()
    effects_by_file: dict[str | None, list[Named]] = {}
    for case in suite.cases if may_have(suite.cases, "settings") else ():
        calls: Json = case.settings.get("direct_calls")
        file = case.origin.file if joined else suite.path
        # A case without a file is not trusted.
        if not calls or trust.takes_file(file if file is not None and Path(file).is_file() else None):
            continue
        for number, call in enumerate(calls if isinstance(calls, list) else [calls]):
            tool = f"{call.get('tool')} of the server {call.get('server')}" if isinstance(call, dict) else show(call)
            effects_by_file.setdefault(file, []).append(Named("calls the tool", tool, f"cases.{case.id}.settings.direct_calls[{number}]"))
    return [(msgspec.structs.replace(suite, path=file), effects) for file, effects in effects_by_file.items()]


def _name_mcplab_judge(suite: Suite) -> list[Named]:
    from proctor.actions.mcplab.access import judge_agent  # only needed for judged cases

    agent = judge_agent(suite)
    return [] if agent is None else [*_name_agent(agent), *_name_variable_files(find_suite_root(suite))]


def _name_agent(agent: Entry) -> list[Named]:
    place = f"agents.{make_printable(str(agent.get('id')))}"
    return [*_name_provider(agent.get("provider"), f"{place}.provider"), *list_effects_in_settings(agent, place)]


def _name_variable_files(root: Path) -> Iterable[Named]:
    return [Named("reads the file", make_printable(str(file)), "variables of the workspace") for file in list_variable_files(root)]


def _name_model(workspace: Workspace, name: str) -> list[Named]:
    """Return what an untrusted entry of `models` names; nothing for one that is trusted or missing."""
    section, place = workspace.models.get(name), f"models.{name}"
    if section is None or section.trusted:
        return []
    elsewhere, keyed = (section.node.get(key) is not None for key in ("base_url", "api_key"))
    provider = _name_provider(section.find_text("provider"), f"{place}.provider", elsewhere=elsewhere, keyed=keyed)
    return [*provider, *list_effects(section.node, place)]


def _name_provider(name: Json, where: str, *, elsewhere: bool = False, keyed: bool = False) -> list[Named]:
    """Return what a request to `provider` or `provider/name` uses, unless address and key are given `elsewhere`."""
    if not isinstance(name, str):
        return []
    provider = name.partition("/")[0].strip().lower()
    address = _ADDRESS_KEYS.get(provider)
    uses = [Named("sends to", f"the provider of {show(name)}" + (f", {address}" if address is not None and not elsewhere else ""), where)]
    keys, addresses = list_variables(provider)
    # Like `fill_from_environment`: a key of the environment is not sent to an address from a file.
    variables = () if elsewhere else (*(() if keyed else keys), *addresses)
    return uses + [Named("reads the variable", variable, where) for variable in variables]


def _list_models(section: Section | None) -> list[str]:
    member = section.node.get("model") if section is not None else None
    entries = () if member is None else (member, *member.items())
    return [entry.value for entry in entries if isinstance(entry.value, str)]
