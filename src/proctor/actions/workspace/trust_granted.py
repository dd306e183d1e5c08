"""Whether whoever gave the command said that a suite is trusted: `--trust`, or `PROCTOR_TRUST=1`."""

from __future__ import annotations

import os
from collections.abc import Mapping

VARIABLE = "PROCTOR_TRUST"
_YES = frozenset(("1", "true", "yes", "on"))


def is_trust_granted(granted: bool | None = None, environment: Mapping[str, str] | None = None) -> bool:
    """Return what was said; where nobody said anything the environment is asked."""
    if granted is not None:
        return granted
    variables = os.environ if environment is None else environment
    return variables.get(VARIABLE, "").strip().lower() in _YES
