"""Carries a request to a provider and its answer back, whichever way the bytes go.

Two ways: `direct.py`, connections of our own, for nearly everything; `through_httpx.py` where a proxy stands between, or where somebody
else decides which addresses may be reached. What neither can do is the same `CarrierFault`.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from proctor.llm.ports import FaultCode


class Answer(msgspec.Struct, frozen=True):
    """An answer as it came, before it is judged. Header names are lower case."""

    status: int
    headers: dict[str, str]
    content: bytes


class CarrierFault(Exception):
    """Why there is no answer: a code, and what happened, possibly with secrets in it."""

    def __init__(self, code: FaultCode, what: str) -> None:
        super().__init__(what)
        self.code: FaultCode = code
        self.what = what


class Carrier(Protocol):
    """Posts bytes and reads what is answered."""

    async def send(self, url: str, content: bytes) -> Answer:
        """Post `content` and return the answer. Raises `CarrierFault`."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def refuse_too_large(limit: int) -> CarrierFault:
    """Return the fault for an answer that is too large to be read to its end."""
    return CarrierFault("bad_answer", f"answered with more than {limit // 1024 // 1024} MB")


def refuse_address() -> CarrierFault:
    """Return the fault for an address that nothing can be sent to."""
    return CarrierFault("bad_request", "is not an address that can be reached")
