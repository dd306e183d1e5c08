"""What carries a request to a provider and its answer back, whichever way the bytes go.

Two ways: `direct.py`, connections of our own, for nearly everything; `through_httpx.py` where a proxy stands between, or where somebody
else decides which addresses may be reached. What neither can do is the same `CarrierFault`.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from proctor.llm.ports import FaultCode


class Answer(msgspec.Struct, frozen=True):
    """What came back, before it is judged. Headers have lower-case names."""

    status: int
    headers: dict[str, str]
    content: bytes


class CarrierFault(Exception):
    """No answer: the word for it, and what happened, possibly with secrets in it."""

    def __init__(self, code: FaultCode, what: str) -> None:
        super().__init__(what)
        self.code: FaultCode = code
        self.what = what


class Carrier(Protocol):
    """Posts bytes and reads what is answered."""

    async def send(self, url: str, content: bytes) -> Answer:
        """The answer to `content`. Raises `CarrierFault`."""
        ...

    async def close(self) -> None:
        """Give back the connections."""
        ...


def too_large(limit: int) -> CarrierFault:
    """An answer that is not read to its end."""
    return CarrierFault("bad_answer", f"answered with more than {limit // 1024 // 1024} MB")


def not_an_address() -> CarrierFault:
    """An address that nothing can be sent to."""
    return CarrierFault("bad_request", "is not an address that can be reached")
