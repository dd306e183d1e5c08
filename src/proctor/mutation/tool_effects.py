"""Decides by its name whether a tool only reads or has effects.

The first verb of the name decides (`getOrder`, `lookup_order`, `crm.search`). A name without a known verb is neither.
"""

from __future__ import annotations

import functools
import re
from typing import Literal

Effect = Literal["reads", "changes", "unknown"]

_READS = frozenset(
    re.findall(
        r"\w+",
        """get list search find lookup look read fetch query check show describe count view browse retrieve load select inspect calculate
    compute convert compare validate verify estimate preview lint parse format summarize translate ask rank scan status history open
    explore grep stat head resolve detect classify extract render weather time""",
    )
)
_CHANGES = frozenset(
    re.findall(
        r"\w+",
        """create update delete remove add insert set put post patch send write save store edit modify change cancel book reserve order buy
    pay refund transfer charge submit approve reject assign close merge publish deploy execute run start stop restart move rename copy
    upload invite notify email mail message reply comment schedule reschedule register subscribe unsubscribe enable disable grant revoke
    reset drop truncate append push commit issue escalate confirm upsert replace import archive restore lock unlock ship return
    open_ticket place call dial fax withdraw deposit terminate kill purge wipe""",
    )
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@functools.lru_cache(maxsize=4096)
def find_effect(name: str) -> Effect:
    """Return whether a tool of this name reads or changes something."""
    own = re.split(r"[.:/]|__", name)[-1]
    for word in _WORD.findall(own):
        lower = word.lower()
        if lower in _READS:
            return "reads"
        if lower in _CHANGES:
            return "changes"
    return "unknown"
