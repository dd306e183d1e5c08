"""A case as bytes, for cases that are asked for again and again: to decode one is far quicker than to read its row anew.

Only a case that comes back exactly as it was has such bytes. One that holds what declared types cannot tell (the claims of a simulated
user, a tuple where JSON has a list) has none, and is made of its row.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.model.case import Assertion, Case
from proctor.model.typed import make_msgpack_decoder

_UNLIKE = (TypeError, ValueError, OverflowError, RecursionError)
"""What is raised for a value that cannot be written, or is not read as what it was; `msgspec.ValidationError` is a `ValueError`."""


def _copy_type(kind: type[msgspec.Struct], **other: Any) -> Any:
    """Return a type with the same fields, some of them of another type."""
    return msgspec.defstruct(
        f"Kept{kind.__name__}", [(field.name, other.get(field.name, field.type)) for field in msgspec.structs.fields(kind)], kw_only=True
    )


class CaseBytes:
    """Cases of one file as bytes and back."""

    def __init__(self) -> None:
        # The spec stays bytes at first: only the name of the check, which stands beside it, tells its type.
        claim = _copy_type(Assertion, spec=msgspec.Raw)
        # A simulated user holds claims, too, and few files have one.
        self._decoder = make_msgpack_decoder(_copy_type(Case, assertions=tuple[claim, ...], user=None))
        self._specs: dict[str, msgspec.msgpack.Decoder[Any]] = {}
        """How the parameters of a check are read, by its name."""

    def encode(self, case: Case) -> bytes | None:
        """Return a case as bytes; None where they would not make the very same case."""
        try:
            self._learn_specs(case)
            found = msgspec.msgpack.encode(case)
            again = self.decode(found)
            # What is equal may still be written in another way: 1 and 1.0, or true and 1.
            return found if again == case and msgspec.msgpack.encode(again) == found else None
        except _UNLIKE:
            return None

    def decode(self, found: bytes) -> Case:
        """Return the case that bytes were made of."""
        kept = msgspec.structs.asdict(self._decoder.decode(found))
        kept["assertions"] = tuple(map(self._make_claim, kept["assertions"]))
        return Case(**kept)

    def _make_claim(self, kept: Any) -> Assertion:
        fields = msgspec.structs.asdict(kept)
        fields["spec"] = self._specs[kept.check].decode(kept.spec)
        return Assertion(**fields)

    def _learn_specs(self, case: Case) -> None:
        for claim in case.assertions:
            if claim.check not in self._specs:
                self._specs[claim.check] = make_msgpack_decoder(type(claim.spec))
