"""What a suite may do only if it is trusted, and which variables a run may refer to. A suite may come from anywhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Literal

import msgspec

from proctor.actions.workspace.run_history import find_home, get_workspace_folder, is_workspace_folder
from proctor.actions.workspace.settings import workspace_file
from proctor.actions.workspace.suites import TRUST_VARIABLE, is_trust_granted
from proctor.errors import InputError
from proctor.formats.text.located import Located
from proctor.formats.workspace_file.workspace import Section
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.show import escape_unseen, shorten, show
from proctor.patterns.globs import compile_glob, matches_glob
from proctor.report.words.wording import count_noun
from proctor.sources.dotenv import DOTENV_FILE, with_dotenv

Doing = Literal["reading", "running"]

_MOST_LISTED = 40
"""Things of one kind that are listed one by one."""
_WORST_FIRST = ("starts", "imports", "calls the tool", "sends to", "reads the variable", "reads the file")
_LONGEST = 160
_LONGEST_LINE = 2_000
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
    """Which suites are taken at their word."""

    doing: Doing = "reading"
    granted: bool = False
    """Whether the user granted it explicitly."""
    folder: Path
    """The working folder."""
    listed: tuple[str, ...] = ()
    """Patterns of files, from the working folder, that its workspace file trusts."""

    def takes(self, suite: Suite | None) -> bool:
        """Whether what this suite describes may be used; what was written in Python is the author's own."""
        if self.granted or suite is None:
            return True
        if suite.dialect != "mcplab":
            return self.takes_file(suite.path)
        from proctor.actions.mcplab.files import list_configs, list_workspace_files  # only MCPLab's own suites need it

        # Agents and servers come out of other files than the config, and any of them may be a link that leads out.
        configs = list_configs(suite)
        return all(self.takes_file(each.path) and all(map(self.holds, list_workspace_files(each))) for each in configs)

    def takes_file(self, path: str | Path | None) -> bool:
        """Whether what the suite in this file describes may be used; of one in no file it may not."""
        if self.granted:
            return True
        if path is None or not self.holds(path):
            return False
        inside = Path(path).resolve().relative_to(self.folder.resolve()).as_posix()
        return self.doing == "running" or any(matches_glob(compile_glob(pattern), inside) for pattern in self.listed)

    def holds(self, path: str | Path) -> bool:
        """Whether a file is in the working folder, after resolving links."""
        return Path(path).resolve().is_relative_to(self.folder.resolve())

    def may_read(self, path: Path) -> bool:
        """Whether a file that comes with a suite may be read."""
        return self.granted or self.holds(path)


def trust_for(
    doing: Doing, *, granted: bool | None = None, home: Path | None = None, environment: Mapping[str, str] | None = None
) -> Trust:
    """Return what is trusted here; without a flag the environment decides."""
    granted = is_trust_granted(granted, environment)
    # The folder of the nearest workspace file, else the current one.
    folder = find_home(None).parent
    listed = workspace_file(home if home is not None else find_home(None)).trust
    return Trust(doing=doing, granted=granted, folder=folder, listed=listed)


def refuse_untrusted(found: Iterable[tuple[Suite, Iterable[Named]]], trust: Trust) -> None:
    """Raise `InputError` with everything that suites name, where any of them names anything."""
    refused = [_describe_untrusted(suite, named, trust) for suite, named in _gather(found)]
    if refused:
        raise InputError(
            "\n".join(refused)
            + f"\n  Describe in proctor.yaml what you know yourself, or, if you trust the author of the suite: --trust ({TRUST_VARIABLE}=1)"
        )


def _gather(found: Iterable[tuple[Suite, Iterable[Named]]]) -> list[tuple[Suite, list[Named]]]:
    """Return each suite once that names anything, with all that it names, the worst first."""
    by_place: dict[str, tuple[Suite, list[Named]]] = {}
    for suite, named in found:
        by_place.setdefault(suite.path or suite.name, (suite, []))[1].extend(named)
    gathered = ((suite, sorted(dict.fromkeys(named), key=_rank)) for suite, named in by_place.values())
    return [(suite, named) for suite, named in gathered if named]


def _rank(named: Named) -> int:
    return _WORST_FIRST.index(named.does) if named.does in _WORST_FIRST else len(_WORST_FIRST)


def _describe_untrusted(suite: Suite, named: Sequence[Named], trust: Trust) -> str:
    lines: list[str] = []
    width = max(len(one.does) for one in named)
    # A long list of one kind must not hide the next.
    for _, same in groupby(named, key=lambda one: one.does):
        alike = list(same)
        lines += [f"  {one.does:<{width}}  {make_printable(one.what)}  ({make_printable(one.where)})" for one in alike[:_MOST_LISTED]]
        if len(alike) > _MOST_LISTED:
            lines.append(f"  {alike[0].does:<{width}}  {len(alike) - _MOST_LISTED} more")
    name = f'"{make_printable(suite.path)}"' if suite.path is not None else f"{suite.name[:_LONGEST]!r}, which comes from no file,"
    return (
        f"the suite {name} is not trusted with what it names; nothing was started and nothing was sent. It names:\n"
        + "\n".join(lines)
        + f"\n  {_why(suite, trust)}"
    )


def _why(suite: Suite, trust: Trust) -> str:
    if trust.doing == "reading":
        why = "Reading recorded evidence uses only models and judges that proctor.yaml describes, the command names, or the environment."
        places = _list_inside(suite, trust)
        line = f"trust: {escape_unseen(show(places, _LONGEST_LINE))}"
        return f"{why}\n  To allow it for good: {line} in proctor.yaml of {make_printable(str(trust.folder))}" if places else why
    if suite.path is None:
        return "Only suites in files of the working folder are run without asking."
    return f"It is not in the working folder {make_printable(str(trust.folder))}, or is reached over a link that leads out of it."


def _list_inside(suite: Suite, trust: Trust) -> list[str]:
    """Return what a line of the workspace file would have to list for this suite; nothing where no line can help."""
    from proctor.actions.mcplab.files import list_configs, list_workspace_files  # only a refusal needs it

    places: list[str] = []
    for each in list_configs(suite) if suite.dialect == "mcplab" else [suite]:
        files = list_workspace_files(each) if suite.dialect == "mcplab" else []
        if each.path is None or not all(map(trust.holds, (each.path, *files))) or Path(each.path).is_dir():
            return []
        places.append(Path(each.path).resolve().relative_to(trust.folder.resolve()).as_posix())
    return places


def named_in(section: Section, place: str) -> Iterator[Named]:
    """Return what one entry of a suite names: processes, code, addresses, files and variables."""
    yield from _named_at(section.node, place)


def named_in_settings(settings: Mapping[str, Json], place: str) -> Iterator[Named]:
    """As `named_in`, over settings of any shape."""
    yield from named_in(Section.of(settings, trusted=False), place)


def _named_at(node: Located, place: str) -> Iterator[Named]:
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
        for file in (member, *member.items()) if key in _FILES else ():
            if isinstance(file.value, str):
                yield Named("reads the file", make_printable(file.value), inner)
        # MCPLab names the variables of a login by their name alone.
        if (key == "env" or key.endswith("_env")) and isinstance(member.value, str):
            yield Named("reads the variable", make_printable(member.value), inner)
        yield from _named_at(member, inner)
    for index, item in enumerate(node.items()):
        yield from _named_at(item, f"{place}[{index}]")
    if isinstance(node.value, str):
        if _ADDRESS.match(node.value.strip()):
            yield Named("sends to", make_printable(node.value), place)
        for name in _REFERENCE.findall(node.value):
            yield Named("reads the variable", make_printable(name), place)


def make_printable(text: str) -> str:
    """Return a text of the suite so that it can be printed, whatever is in it."""
    # Control characters could hide on a terminal what an untrusted suite names.
    return escape_unseen(shorten(text, _LONGEST))


_ADDRESSES = ("_BASE_URL", "_ENDPOINT", "_API_BASE", "_HOST", "_PROXY")
_OWN = "PROCTOR_"


def list_dotenv_files(home: Path, trust: Trust) -> list[Path]:
    """Return the `.env` files of the working directory and of the workspace, as far as they may be read."""
    places = dict.fromkeys(folder.resolve() for folder in (Path.cwd(), get_workspace_folder(home)))
    found = [place / DOTENV_FILE for place in places if trust.doing == "running" or trust.granted or is_workspace_folder(place)]
    return [file for file in found if file.is_file() and trust.may_read(file)]


def read_variables(environment: Mapping[str, str], home: Path, trust: Trust, announce: Callable[[str], None]) -> dict[str, str]:
    """Return the environment with the variables of `.env` files added; variables that are set win. Raises `InputError`.

    Addresses and the choice of a judge are not taken: the author of such a file could direct a key of the environment to themselves.
    """
    known = dict(environment)
    for file in list_dotenv_files(home, trust):
        new = {name: value for name, value in with_dotenv(known, [file]).items() if name not in known}
        # In any case of letters: HTTP clients read `http_proxy`, too.
        refused = [name for name in new if name.upper().endswith(_ADDRESSES) or name.upper().startswith(_OWN)]
        taken = {name: value for name, value in new.items() if name not in refused}
        if taken:
            announce(f"{count_noun(len(taken), 'variable')} taken from {file}; what the environment has counts more")
        if refused:
            announce(f"not taken from {file}: {', '.join(refused[:5])}; addresses come from the environment or proctor.yaml")
        known |= taken
    return known
