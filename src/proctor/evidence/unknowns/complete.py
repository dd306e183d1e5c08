"""The author vouches for completeness: `complete: [tool_calls, answer]` in a suite, a target, an agent, or `--complete`.

A declaration overrides what was not recognised and missing model spans. It never overrides lost data, contradictions, a record that ends
early, or a failed run. Calls that were not recorded at all count as none made.
"""

from __future__ import annotations

import msgspec

from proctor.model.account import CALL_PARTS, PART_NAMES, Account, Part
from proctor.model.evidence import Evidence


def declare_complete(evidence: Evidence, parts: tuple[Part, ...], source: str) -> Evidence:
    """Return evidence whose declared parts are known, as far as a declaration reaches; `source` is where it is written."""
    account = evidence.account or Account()
    wanted = {*parts, *(CALL_PARTS if "tool_calls" in parts else ())}
    lifted = {part for part in account.overridable if part in wanted}
    changes: dict[str, object] = {}
    # `nodes` record calls as well as a list of calls would.
    unrecorded = "tool_calls" in parts and evidence.tool_calls is None and evidence.nodes is None
    if unrecorded and ("tool_calls" not in account.unknown or "tool_calls" in lifted) and evidence.error is None:
        changes["tool_calls"] = ()
    if not lifted and not changes:
        return evidence
    named = ", ".join(PART_NAMES[part] for part in parts)
    changes["account"] = msgspec.structs.replace(
        account,
        unknown={part: why for part, why in account.unknown.items() if part not in lifted},
        overridable=tuple(part for part in account.overridable if part not in lifted),
        seen_tools=() if "tool_calls" in lifted else account.seen_tools,
        notes=(*account.notes, f"{named} complete: declared in {source}"),
    )
    return msgspec.structs.replace(evidence, **changes)
