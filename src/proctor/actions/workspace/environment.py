"""Where runs take place: on a machine of one's own, or in a service that runs the suites of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from proctor.targets.shared.wire import MakeTransport


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What variables are called in messages, how one is given, and how connections are made."""

    variable: str = "the environment variable {name}"
    remedy: str = "export {name}={value}"
    login: str = "give its token: --oauth-token {server}=TOKEN"
    model_transport: MakeTransport | None = None
    server_transport: MakeTransport | None = None
    """How targets and MCP servers are reached."""
    dotenv: bool = False
    """Whether the `.env` files of an MCPLab workspace count."""


COMMAND_LINE: Final = Surroundings(dotenv=True)
