"""Whether two records can be of one call: by the names of the tool and the arguments.

A framework may put the name of a plugin or of a server in front of a tool's own name (`Shop-refund`, `shop__refund`), add defaults to
what was passed, and leave out nulls.
"""

from __future__ import annotations

import re

from proctor.model.evidence import Json

_FRONT = re.compile(r"^.*(?:[-.:/]|__)(?=\w)", re.DOTALL)
"""The prefix of a tool's own name: `Shop-`, `server:`, `server__`."""
_SEPARATORS = ("-", ".", ":", "/", "__")
_NO_WORD = re.compile(r"\W|_")


def strip_framework_prefix(name: str) -> str:
    """Return a tool's name without the prefix of a framework; tools whose stripped names differ are different tools."""
    # Nearly all names are words without a separator, and this check is ten times as fast.
    if name.isidentifier() and "__" not in name:
        return name
    return _FRONT.sub("", name) or name


def can_be_one_tool(one: str, other: str) -> bool:
    """Return whether two names can mean one tool: they are equal, or one has the prefix of a plugin or a server."""
    if one == other:
        return True
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    return bool(shorter) and longer.endswith(shorter) and longer[: -len(shorter)].endswith(_SEPARATORS)


def is_name_at_server(name: str, own: str) -> bool:
    """Return whether a framework's name for a tool can mean its name at the MCP server; some join the two by `_`."""
    one, other = _NO_WORD.sub("", name).lower(), _NO_WORD.sub("", own).lower()
    # A separator must precede the tool's own name, or `refund` would be found in `prerefund`.
    return one == other or (bool(other) and one.endswith(other) and not name[: -len(own)][-1:].isalnum())


def can_agree(asked: Json, given: Json) -> bool:
    """Return whether two records of arguments can be of one call: a framework may add defaults and leave out nulls."""
    if asked is None or given is None or asked == given:
        return True
    if isinstance(asked, dict) and isinstance(given, str):
        # LangChain passes a tool with one argument its bare value.
        return len(asked) == 1 and given in asked.values()
    if not isinstance(asked, dict) or not isinstance(given, dict):
        return False
    # One of them may have more than the other (defaults added, nulls left out), but not each something of its own.
    return all(asked[key] == given[key] for key in asked.keys() & given.keys()) and (
        asked.keys() <= given.keys() or given.keys() <= asked.keys()
    )
