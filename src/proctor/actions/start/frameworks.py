"""Agent frameworks, usable without installing them: how an agent of each is created, found in code, and called.

They are listed in `examples/start/frameworks.toml`. `makers` are the names that create an agent, as an import spells them. `ask` is a thin
adapter: `{agent}` is replaced by the agent, and the adapter returns the result of the framework, which the target reads. Cases run
concurrently, and a case may have several turns: each case has its own conversation, stored by its `session_id`. An agent with an internal
conversation is called one turn at a time, and gets the conversation of that case first.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

import proctor.examples
from proctor.model.typed import convert_to


class Variant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another adapter, for agents that are created by these names."""

    makers: tuple[str, ...]
    ask: str


class Framework(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One agent framework."""

    name: str = ""
    roots: tuple[str, ...]
    """The modules that its users import."""
    packages: tuple[str, ...]
    """Its names in a list of requirements."""
    install: str
    """What the template needs."""
    makers: tuple[str, ...]
    methods: tuple[str, ...] = ()
    """Methods that make an agent: `builder.compile()`."""
    imports: tuple[str, ...] = ()
    """What the adapter imports."""
    before: str = ""
    """Lines between the imports and the function."""
    ask: str
    variants: tuple[Variant, ...] = ()
    field: str = "message"
    """The name of the input, if agents of the framework have one and the code does not show it."""
    key: str = "OPENAI_API_KEY"
    """The variable that the template's model needs."""
    remark: str = ""
    """A remark about turns, if the framework's agent handles them itself."""

    def find_ask(self, maker: str) -> str:
        """Return the adapter for agents that are created by this name."""
        return next((variant.ask for variant in self.variants if maker in variant.makers), self.ask)


START = Path(proctor.examples.__path__[0]) / "start"
"""The folder of the templates."""
_LISTED = convert_to(tomllib.loads((START / "frameworks.toml").read_text(encoding="utf-8")), dict[str, Framework])
FRAMEWORKS = {name: msgspec.structs.replace(framework, name=name) for name, framework in _LISTED.items()}
"""Every framework by name; those built on others come first."""
