"""What may be found in a folder: agents, functions and routes in Python code, and exports of platforms."""

from __future__ import annotations

import msgspec

from proctor.model.evidence import Json


class FoundAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that can be imported."""

    framework: str
    file: str
    """From the folder that was looked through."""
    line: int
    name: str
    maker: str
    is_factory: bool = False
    """Whether `name` is a function that makes it."""
    field: str | None = None
    """The name of the input, where agents of the framework have one."""


class FoundFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A function that looks as if it took a message."""

    file: str
    line: int
    name: str
    holder: str | None = None
    """The class whose method it is, where it is one."""

    @property
    def called(self) -> str:
        """How the function is called in messages."""
        return f"{self.name}()" if self.holder is None else f"{self.holder}().{self.name}()"


class FoundRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A path of a web application that takes a message."""

    file: str
    line: int
    path: str
    field: str = "input"
    port: int = 8000


class FoundProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program that takes a message and prints the answer."""

    file: str
    why: str
    command: tuple[str, ...]
    remarks: tuple[str, ...] = ()


class PythonCode(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in the Python files of a folder."""

    agents: tuple[FoundAgent, ...] = ()
    hidden: tuple[FoundAgent, ...] = ()
    """Agents that stand where nobody can import them from."""
    functions: tuple[FoundFunction, ...] = ()
    routes: tuple[FoundRoute, ...] = ()
    tools: tuple[str, ...] = ()
    imported: tuple[str, ...] = ()
    """The frameworks that some file imports."""
    files: int = 0
    """How many files there are."""
    unread: tuple[str, ...] = ()
    """Files that Python cannot read, with the place and the reason."""


class FoundExport(msgspec.Struct, frozen=True, kw_only=True):
    """Something that tells how an agent is reached."""

    kind: str
    file: str
    settings: dict[str, Json]
    """The target, as `proctor.yaml` describes it."""
    remarks: tuple[str, ...] = ()
    """What the reader has to see to."""
