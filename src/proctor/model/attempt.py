"""One go at one case: what a target is told beside the case itself."""

import msgspec

from proctor.model.case import Case


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One go at one case."""

    case: Case
    number: int = 0
    """From 0; repeats of a case are numbered."""
    request_id: str
    """Identifies this go in headers and traces."""
    session_id: str
    """The conversation all turns of this go belong to."""
    timeout_s: float = 120.0
    """How long the whole go may take; the target must end by itself, and is ended if it does not."""
