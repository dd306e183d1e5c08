"""Messages over MLLP, sent over a bare socket; a real client is in `tests/live/clients/test_simulator_clients.py`."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from proctor.model.case import System, list_variables
from proctor.sandboxes.mllp import take_frames
from proctor.sandboxes.server import LoopbackServer
from proctor.simulators.rows import MemoryStore
from proctor.simulators.sandbox import Sandbox, provision_rows
from tests.simulators.workplace import make_surroundings

ADT = b"MSH|^~\\&|A|B|C|D|2026||ADT^A01|C-%d|P|2.5\rPID|1||17\r"


@pytest.mark.parametrize(
    ("came", "frames", "left"),
    [
        (b"\x0bone\x1c\r\x0btwo\x1c\r", [b"one", b"two"], b""),
        (b"noise\x0bone\x1c\rnoise", [b"one"], b""),
        (b"\x0bone\x1c\r\x0btw", [b"one"], b"\x0btw"),
        (b"\x0bbroken off\x0bone\x1c\r", [b"one"], b""),
        (b"\x0bone\x1c", [], b"\x0bone\x1c"),
    ],
)
def test_only_complete_frames_are_accepted(came: bytes, frames: list[bytes], left: bytes) -> None:
    waiting = bytearray(came)
    assert take_frames(waiting) == frames
    assert bytes(waiting) == left


def test_messages_are_acknowledged_in_order_and_stored() -> None:
    before = threading.active_count()
    systems = (System(name="feed", kind="hl7", seed={"mllp": True}),)
    around = make_surroundings()
    server = LoopbackServer()
    server.open()
    sandbox = Sandbox("s1", systems, MemoryStore(), around)
    asyncio.run(sandbox.provision(provision_rows(systems, around)))
    place = server.add(sandbox, ("feed",), mllp=("feed",))
    found = place.find_variables(("feed",))
    assert tuple(found) == list_variables(systems)
    host, _, port = found["feed_mllp"].partition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5) as wire:
            wire.sendall(b"\x0b" + ADT % 1 + b"\x1c\r\x0bno message\x1c\r")
            answer = b""
            while answer.count(b"\x1c\r") < 2:
                answer += wire.recv(4_000)
        assert b"MSA|AA|C-1" in answer.split(b"\x1c\r")[0]
        assert b"MSA|AR" in answer.split(b"\x1c\r")[1]
        state = asyncio.run(sandbox.read_state())
        assert state.hl7 is not None and len(state.hl7.outbound) == 1
        assert [(one.method, one.path) for one in state.requests or ()] == [("POST", "/outbound")] * 2
        server.remove(sandbox)
        with pytest.raises(OSError):
            socket.create_connection((host, int(port)), timeout=1)
    finally:
        server.close()
    assert threading.active_count() <= before + 1, "the thread of the connection ends by itself"
