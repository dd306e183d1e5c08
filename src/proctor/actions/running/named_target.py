"""A target as named on the command line: an entry of the workspace, a Python function, an address or a command.

    shop                          an entry under `targets` of proctor.yaml or of the suite
    app:answer                    a Python function, its module found in the current folder or where Python finds modules;
                                  `shop/app.py:answer` is `shop.app:answer`
    http://127.0.0.1:9000/chat    an agent over HTTP: the message is posted as JSON, the answer is looked up under the usual keys
    "python agent.py"             a program: the message on its standard input, the answer on its standard output

The user types it, so it needs no file and no trust. A single word is always a name: a mistyped name must not start a program.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Literal

import msgspec

from proctor.actions.workspace.combined_suites import TARGET_KEYS, split_suite
from proctor.actions.workspace.settings import workspace_for
from proctor.cassettes.ports import Tape
from proctor.errors import InputError
from proctor.formats.text.references import References
from proctor.model.attempt import Attempt
from proctor.model.case import Suite
from proctor.model.evidence import Evidence, Json
from proctor.model.show import shorten, show, suggest
from proctor.runner.ports import Target
from proctor.targets.build import build_target

WAYS = 'module:function, a URL, or a command in quotes ("python agent.py")'
"""The forms of a target that no file describes."""
_CAPTURE_OF_A_NAME = "for a named target, write `capture: otel` next to its `function` in proctor.yaml"
_URL = re.compile(r"https?://[^\s]+", re.IGNORECASE)
_FILE = re.compile(r"(?:\./)?(?P<path>(?:[^\W\d]\w*/)*[^\W\d]\w*)\.py:(?P<function>[^\W\d]\w*(?:\.[^\W\d]\w*)*)")
_SERVER = re.compile(r"(?:localhost|[\w-]+(?:\.[\w-]+)+|\[[0-9a-fA-F:]+\]):\d{1,5}(?:/\S*)?", re.IGNORECASE)
_FUNCTION = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")


class GivenTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A target that no file describes."""

    kind: Literal["function", "http", "command"]
    name: str
    """Its name in reports, without the secrets of an address or a command."""
    settings: dict[str, Json]


def parse_target(text: str) -> GivenTarget | None:
    """Return the target that a text describes, or None if it can only be a name. Raises `InputError`."""
    stripped = text.strip()
    if _URL.fullmatch(stripped):
        # Without user, password and query, which may be secrets.
        name = re.sub(r"//[^/@]*@", "//", re.sub(r"[?#].*", "", stripped))
        return GivenTarget(kind="http", name=name, settings={"type": "http", "url": _keep_literal(stripped)})
    if (match := _FILE.fullmatch(stripped)) is not None:
        return parse_target(f"{match['path'].replace('/', '.')}:{match['function']}")
    if _FUNCTION.fullmatch(stripped):
        return GivenTarget(kind="function", name=stripped, settings={"type": "callable", "function": stripped})
    # Rejected here: otherwise it would be taken for a name, or with a path for a program to start.
    if _SERVER.fullmatch(stripped):
        raise InputError(f"--target {show(stripped)} is no address: write http://{stripped}")
    if not re.search(r"\s", stripped) and os.sep not in stripped:
        return None
    try:
        words = shlex.split(stripped)
    except ValueError as error:
        raise InputError(f"--target {show(stripped)} is no command: {error}") from None
    # The name goes into reports, and the arguments of a command may hold secrets.
    name = shorten(" ".join(words[:2]), 60)
    return GivenTarget(kind="command", name=name, settings={"type": "command", "command": [_keep_literal(word) for word in words]})


def choose_target(target: str | None, suite: Suite, home: Path, *, capture: str | None = None) -> str | Target | None:
    """Return the name of a described target, else the target that `given` itself describes. Raises `InputError`.

    `capture` adds the spans of a Python function to the evidence.
    """
    known = (
        {name for part in split_suite(suite, TARGET_KEYS) for name in workspace_for(part, home).targets}
        if target is not None
        else set[str]()
    )
    # A described name wins, even if it looks like a function or an address.
    described = parse_target(target) if target is not None and target not in known else None
    if capture is not None and (described is None or described.kind != "function"):
        raise InputError(f"--capture is for a Python function: --target module:function --capture {capture}; {_CAPTURE_OF_A_NAME}")
    if described is not None:
        settings = described.settings if capture is None else {**described.settings, "capture": capture}
        return build_given(msgspec.structs.replace(described, settings=settings))
    if target is None or target in known:
        return target
    hint = suggest(target, known)
    if target.endswith(".py"):
        hint += f'; a function in it is {Path(target).stem}:FUNCTION, the program "python {target}"'
    listed = ", ".join(sorted(known)) or "none"
    raise InputError(f"there is no target {target!r}{hint}; known: {listed}\n  a target that no file describes is {WAYS}")


def find_address(value: object) -> GivenTarget | None:
    """Return the HTTP target for an address given in place of a target's name; None for everything else."""
    return parse_target(value) if isinstance(value, str) and _URL.fullmatch(value.strip()) else None


def build_given(target: GivenTarget) -> Target:
    """Return a target that the command line describes; functions and programs are looked for in the current folder."""
    return build_target(target.name, target.settings, References({}), base=Path.cwd())


def _keep_literal(text: str) -> str:
    """Return a text in which `${` is literal: the shell has replaced the user's variables."""
    return text.replace("${", "$${")


class DrivenTarget:
    """Delegates everything to the target that it drives; subclasses override what they change."""

    def __init__(self, target: Target) -> None:
        self.driven = target

    @property
    def name(self) -> str:
        """The name of the target that is driven."""
        return self.driven.name

    def __getattr__(self, name: str) -> object:
        # Optional methods of targets (`describe_risk`, `find_tools`) are delegated as well.
        return getattr(self.driven, name)

    async def open(self) -> None:
        """Connect the target."""
        await self.driven.open()

    async def close(self) -> None:
        """Close the target."""
        await self.driven.close()

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Drive the target."""
        return await self.driven.run(attempt, tape)
