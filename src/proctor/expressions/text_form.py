"""How a value reads as text, wherever a comparison or `CONCAT` casts one.

Text stays as it is; a day is `2026-11-16`, a time `2026-11-16T10:00:00` (the clock face of its zone, whole seconds); `true`,
`false`; numbers as JSON; null is empty; lists and objects are compact JSON.
"""

from __future__ import annotations

from datetime import date, datetime

from proctor.errors import CheckFault
from proctor.model.show import kind_of


def write_text_form(value: object) -> str:
    """Return the value as text. A structure nested too deeply for that is a fault."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    # Before `date`, of which `datetime` is a subclass.
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="seconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float):
        return repr(value)
    # Well below the 4,300 digits beyond which Python refuses to print an integer; a larger one becomes a fault below.
    if isinstance(value, int) and value.bit_length() < 10_000:
        return str(value)
    import json  # only lists and objects need it; the faster encoder we use elsewhere refuses large integers

    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=write_text_form)
    except RecursionError:
        raise CheckFault("value_too_deep", f"the {kind_of(value)} is nested too deeply to be read as text") from None
    except ValueError:
        raise CheckFault("value_too_large", f"the {kind_of(value)} holds a number too large to be read as text") from None
