"""Reading values of declared types, first of all in many threads at once."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from proctor.model.typed import convert_to, decode_json, decode_msgpack, make_json_decoder, make_msgpack_decoder

FIRST_IN_THREADS = """
import importlib, sys, threading
from proctor.model import case
from proctor.model.typed import convert_to, decode_json, make_json_decoder, make_msgpack_decoder

DATA = b'{"name": "x", "cases": [], "prices": null, "settings": {}}'
READERS = [
    lambda kind: decode_json(DATA, kind),
    lambda kind: convert_to({"name": "x", "cases": []}, kind),
    lambda kind: make_json_decoder(kind).decode(DATA),
    lambda kind: make_msgpack_decoder(kind),
]
sys.setswitchinterval(1e-6)
failed = []

def read(number, kind, gate):
    gate.wait()
    try:
        READERS[number % len(READERS)](kind)
    except Exception as error:
        failed.append(repr(error))

for _ in range(12):
    kind = importlib.reload(case).Suite  # a class that was not read yet
    gate = threading.Barrier(8)
    threads = [threading.Thread(target=read, args=(number, kind, gate)) for number in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
sys.exit("; ".join(sorted(set(failed))) or 0)
"""


class Price(msgspec.Struct, frozen=True):
    amount: int


@pytest.mark.timeout(30)
def test_a_type_that_many_threads_read_first_at_once_is_read_by_all_of_them() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_IN_THREADS], capture_output=True, text=True, timeout=25)
    assert (done.returncode, done.stderr) == (0, ""), "msgspec was let to learn one type in two threads"


def test_every_reader_returns_the_declared_type_or_an_error() -> None:
    packed = msgspec.msgpack.encode({"amount": 3})
    read = [convert_to({"amount": 3}, Price), decode_json('{"amount": 3}', Price), decode_msgpack(packed, Price)]
    read += [make_json_decoder(Price).decode(b'{"amount": 3}'), make_msgpack_decoder(Price).decode(packed)]
    assert read == [Price(3)] * 5
    assert convert_to([{"amount": 3}], list[Price]) == [Price(3)]
    with pytest.raises(msgspec.ValidationError, match="amount"):
        convert_to({"amount": "3"}, Price)
    assert convert_to({"amount": "3"}, Price, strict=False) == Price(3)
