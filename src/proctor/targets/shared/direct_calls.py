"""Tool calls that a case makes itself, without a model: the `toolCall` steps of MCPJam.

They stand in `settings.direct_calls`, each with the number of prompts before it. They go to the server over the same connection and tape
as the model's own calls, and are recorded among the tool calls of the run, at their place; those after a prompt belong to its turn.
The model does not see them. A target that reaches no MCP server cannot make them: such a case is an error there, never half a case.
"""

from __future__ import annotations

import msgspec

from proctor.errors import TargetError
from proctor.model.case import Case
from proctor.model.evidence import Json
from proctor.model.show import nearest, show
from proctor.model.typed import convert_to

CODE = "unsupported_step"


class DirectCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call, as the reader of the dialect keeps it."""

    server: str
    tool: str
    arguments: dict[str, Json] = {}
    after_prompts: int = 0
    id: str | None = None
    server_id: str | None = None
    render_timeout_ms: int | None = None
    """How long a widget may take to appear: nothing is rendered here."""

    def find_server(self, known: tuple[str, ...]) -> str | None:
        """Return the server that is meant: by its name, else by its id."""
        return next((name for name in (self.server, self.server_id) if name in known), None)

    def describe_unknown_server(self, known: tuple[str, ...]) -> str:
        """Return the message for a target that has no such server."""
        close = nearest(self.server, known)
        hint = f"; nearest: {', '.join(close)}" if close else ""
        return f"a toolCall step: there is no MCP server {show(self.server, 80)}{hint}; known: {', '.join(known) or 'none'}"


def direct_calls(case: Case) -> tuple[DirectCall, ...]:
    """Return the calls that a case makes itself, in order. Raises `TargetError` for an entry that is not a call."""
    found = case.settings.get("direct_calls")
    if found is None:
        return ()
    prompts = len(case.turns) or int(case.input is not None)
    try:
        calls = convert_to(found, tuple[DirectCall, ...])
    except msgspec.ValidationError as error:
        raise TargetError(f"case {case.id!r}: settings.direct_calls cannot be used: {error}", code="bad_request") from None
    for number, call in enumerate(calls):
        if not 0 <= call.after_prompts <= prompts:
            where = f"settings.direct_calls[{number}].after_prompts"
            raise TargetError(f"case {case.id!r}: {where}: expected 0 to {prompts}, found {call.after_prompts}", code="bad_request")
    return calls
