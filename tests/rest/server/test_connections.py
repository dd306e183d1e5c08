"""Which connection is closed when unread answers exceed the limit, with a fake clock and fake transports."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.server import ServerState

from proctor.rest.connections import Connections, GuardedProtocol, make_protocol
from proctor.service.settings import ServiceSettings


class Unread:
    """A transport whose other side reads nothing."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.is_cut = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("203.0.113.1", 1), "sockname": ("203.0.113.2", 443)}.get(name, default)

    def get_write_buffer_size(self) -> int:
        return self.size

    def is_closing(self) -> bool:
        return self.is_cut

    def abort(self) -> None:
        self.is_cut = True


async def test_a_new_connection_is_not_the_slowest_reader(tmp_path: Path) -> None:
    now = 1_000.0
    settings = ServiceSettings(home=tmp_path, unsent_bytes=150)
    kind = make_protocol(settings)
    kind.open_connections = Connections(settings, clock=lambda: now)

    def connect(size: int) -> tuple[GuardedProtocol, Unread]:
        made = kind(config=Config(lambda: None, lifespan="off"), server_state=ServerState(), app_state={})
        transport = Unread(size)
        made.connection_made(cast(asyncio.Transport, transport))
        return made, transport

    slow, unread = connect(100)
    slow.check_time(now)
    now += 5
    # This one was not examined yet.
    _, new = connect(100)
    kind.open_connections.cut_unread()
    assert (unread.is_cut, new.is_cut) == (True, False)
