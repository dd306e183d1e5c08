"""The error for rejected requests, which REST and MCP write in their own format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from proctor.errors import InputError, ProctorError

Place = Literal["body", "headers", "query", "params"]
"""The part of a request that has a field."""
RefusalCode = Literal[
    "VALIDATION_ERROR",
    "BAD_REQUEST",
    "UNAUTHORIZED",
    "FORBIDDEN",
    "NOT_FOUND",
    "REQUEST_TIMEOUT",
    "CONFLICT",
    "PAYLOAD_TOO_LARGE",
    "UNSUPPORTED_MEDIA_TYPE",
    "RATE_LIMITED",
    "UNAVAILABLE",
    "INTERNAL_ERROR",
]

STATUS: dict[str, int] = {
    "VALIDATION_ERROR": 400,
    "BAD_REQUEST": 400,
    "UNAUTHORIZED": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "REQUEST_TIMEOUT": 408,
    "CONFLICT": 409,
    "PAYLOAD_TOO_LARGE": 413,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "RATE_LIMITED": 429,
    "UNAVAILABLE": 503,
    "INTERNAL_ERROR": 500,
}


class Refusal(ProctorError):
    """A rejected request.

    `fields` are problems by field; `places` has the parts of the request of fields outside the body. `problems` are findings in a document:
    line, column, path, message, nearest names. `missing` is the kind of the missing object: `task`, `benchmark run`.
    """

    def __init__(
        self,
        code: RefusalCode,
        message: str,
        *,
        fields: Mapping[str, Sequence[str]] | None = None,
        retry_after_s: float | None = None,
        hint: str | None = None,
        problems: Sequence[Mapping[str, object]] = (),
        places: Mapping[str, Place] | None = None,
        missing: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code: RefusalCode = code
        self.message = message
        self.fields = {name: list(texts) for name, texts in (fields or {}).items()}
        self.retry_after_s = retry_after_s
        self.hint = hint
        self.problems = tuple(problems)
        self.places = dict(places or {})
        self.missing = missing

    def rename_fields(self, rename: Callable[[str], str]) -> Refusal:
        """Return this refusal with other names of its fields."""
        fields = {rename(path): texts for path, texts in self.fields.items()}
        return Refusal(self.code, self.message, fields=fields, retry_after_s=self.retry_after_s, hint=self.hint, problems=self.problems)

    @property
    def status(self) -> int:
        """The HTTP status."""
        return STATUS[self.code]


def not_found(what: str, id: str) -> Refusal:
    """Return the refusal of an object that is missing or belongs to another organization, without distinction."""
    return Refusal("NOT_FOUND", f"there is no {what} {id!r}", missing=what)


def describe_error(error: InputError | Refusal) -> str:
    """Return why a run cannot start, on one line."""
    if isinstance(error, InputError):
        return str(error)
    reasons = [text for texts in error.fields.values() for text in texts]
    return "; ".join([error.message, *reasons[:5]])
