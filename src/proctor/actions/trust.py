"""What a suite may cause. A suite can be anybody's: from a pull request, out of a mail, from a page on the net.

Where a suite is only *read* (`check`, `recheck`, `validate`, `convert`, an assistant's `check_evidence`) nothing is started and nothing is
sent on its word: a model or a judge that it describes itself is used only where the workspace file describes the same, or lists the suite
under `trust`. Where a suite is *run*, what it names is done if it lies in the working folder, as `make` and pytest do with what they find
there; one from elsewhere, from standard input, or reached over a link that leads out is treated as where it is only read. `--trust` (or
`PROCTOR_TRUST=1`) takes a suite at its word.

What is refused is told whole and before anything has happened: which processes, addresses and files, and the names of variables.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import msgspec

from proctor.actions.history import find_home
from proctor.actions.settings import workspace_file
from proctor.errors import InputError
from proctor.formats.located import Located
from proctor.formats.workspace import Section, Workspace
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.show import show

VARIABLE = "PROCTOR_TRUST"
Doing = Literal["reading", "running"]

_YES = frozenset(("1", "true", "yes", "on"))
_MOST_TOLD = 40
_LONGEST = 160
_REFERENCE = re.compile(r"(?<!\$)\$\{([^}]*)\}")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FILES = frozenset(("path", "file", "evidence", "prompt", "cwd", "folder"))


class Named(msgspec.Struct, frozen=True):
    """One thing a suite names."""

    does: str
    """What would happen: `starts`, `imports`, `sends to`, `reads the file`, `reads the variable`."""
    what: str
    where: str


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """Which suites are taken at their word."""

    doing: Doing = "reading"
    granted: bool = False
    """Whether whoever gave the command said so."""
    folder: Path
    """The working folder."""
    listed: tuple[str, ...] = ()
    """Patterns of files, from the working folder, that its workspace file trusts."""

    def takes(self, suite: Suite | None) -> bool:
        """Whether what this suite describes may be used; what was written in Python is the author's own."""
        if self.granted or suite is None:
            return True
        if suite.path is None:
            return False
        place = Path(suite.path).resolve()
        folder = self.folder.resolve()
        if not place.is_relative_to(folder):
            return False
        inside = place.relative_to(folder).as_posix()
        return self.doing == "running" or any(fnmatchcase(inside, pattern) for pattern in self.listed)


def trust_for(
    doing: Doing, *, granted: bool | None = None, home: Path | None = None, environment: Mapping[str, str] | None = None
) -> Trust:
    """Return who is trusted here and now; where nobody said anything the environment is asked."""
    variables = os.environ if environment is None else environment
    if granted is None:
        granted = variables.get(VARIABLE, "").strip().lower() in _YES
    # The folder of the nearest workspace file, else the current one.
    folder = find_home(None).parent
    listed = workspace_file(home if home is not None else find_home(None)).trust
    return Trust(doing=doing, granted=granted, folder=folder, listed=listed)


def refuse_untrusted(suite: Suite, named: Iterable[Named], trust: Trust) -> None:
    """Raise `InputError` with everything the suite names, where it names anything."""
    told = list(dict.fromkeys(named))
    if not told:
        return
    width = max(len(one.does) for one in told)
    lines = [f"  {one.does:<{width}}  {one.what}  ({one.where})" for one in told[:_MOST_TOLD]]
    if len(told) > _MOST_TOLD:
        lines.append(f"  and {len(told) - _MOST_TOLD} more")
    name = show(suite.path) if suite.path is not None else f"{suite.name!r}, which comes from no file,"
    raise InputError(
        f"the suite {name} is not trusted with what it names; nothing was started and nothing was sent. It names:\n"
        + "\n".join(lines)
        + f"\n  {_why(suite, trust)}"
        + f"\n  Describe in proctor.yaml what you know yourself, or, if you trust whoever wrote the suite: --trust ({VARIABLE}=1)"
    )


def _why(suite: Suite, trust: Trust) -> str:
    if trust.doing == "reading":
        return "Reading recorded evidence uses only models and judges that proctor.yaml describes, the command names, or the environment."
    if suite.path is None:
        return "Only suites in files of the working folder are run without asking."
    return f"It does not lie in the working folder {str(trust.folder)!r}, or is reached over a link that leads out of it."


def target_names(target: str | None, workspace: Workspace) -> list[Named]:
    """Return what would happen on the word of a suite alone, were the chosen target driven: by itself, and by the model it talks to."""
    name, section = workspace.find_target(target)
    found: list[Named] = []
    if not section.trusted:
        found.extend(named_in(section, f"targets.{name}"))
    model = section.find_text("model") or (next(iter(workspace.models)) if len(workspace.models) == 1 else None)
    described = workspace.models.get(model) if model is not None and section.find_text("type") == "mcp_agent" else None
    if described is not None and not described.trusted:
        found.extend(named_in(described, f"models.{model}"))
    # One that names nothing we know of may still be a stranger's.
    return found or ([] if section.trusted else [Named("uses", f"the target {name!r}", f"targets.{name}")])


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
        yield Named("starts", _shown(" ".join(str(word.value) for word in words)), f"{place}.command")
    for key, member in members.items():
        inner = f"{place}.{key}" if place else key
        if key == "function" and isinstance(member.value, str):
            yield Named("imports", _shown(member.value), inner)
        for file in (member, *member.items()) if key in _FILES else ():
            if isinstance(file.value, str):
                yield Named("reads the file", _shown(file.value), inner)
        yield from _named_at(member, inner)
    for index, item in enumerate(node.items()):
        yield from _named_at(item, f"{place}[{index}]")
    if isinstance(node.value, str):
        if _ADDRESS.match(node.value.strip()):
            yield Named("sends to", _shown(node.value), place)
        for name in _REFERENCE.findall(node.value):
            yield Named("reads the variable", _shown(name), place)


def _shown(text: str) -> str:
    """Return a text of the suite so that it can be printed, whatever is in it."""
    return show(text, _LONGEST)[1:-1]
