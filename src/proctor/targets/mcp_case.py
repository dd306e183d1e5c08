"""Reads what a case asks of an MCP agent: what it says, the files with it, and the servers it uses."""

from __future__ import annotations

from proctor.errors import TargetError
from proctor.llm.ports import Attachment
from proctor.model.case import Case
from proctor.model.show import show


def says_anything(case: Case) -> bool:
    """Return whether a case has anything to say."""
    return case.custom_body is not None or bool(case.turns) or case.input is not None


def list_inputs(case: Case) -> tuple[str, ...]:
    """Return what a case says, turn by turn. Raises `TargetError` where this agent cannot be told that."""
    if case.custom_body is not None:
        raise TargetError(f"case {case.id!r} has a custom body, which only an agent over HTTP can be sent")
    if case.turns:
        return tuple(turn.input for turn in case.turns)
    if case.input is None:
        raise TargetError(f"case {case.id!r} says nothing to the agent: it has neither input nor turns")
    return (case.input,)


def list_wanted_servers(case: Case, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ids of the servers that the case uses; all of them where it names none."""
    named = case.settings.get("mcp_servers")
    if not isinstance(named, list):
        return known
    ids = [each.get("id") if isinstance(each, dict) else each for each in named]
    return tuple(dict.fromkeys(str(each) for each in ids))


def load_attachments(case: Case) -> tuple[Attachment, ...]:
    """Return the files that go with the first message. Raises `TargetError` for one that was not loaded."""
    found: list[Attachment] = []
    for each in case.settings.get("attachments") or ():
        if not each.get("data") and not each.get("url"):
            raise TargetError(f"case {case.id!r}: the attachment {show(each.get('path') or each.get('name'), 80)} was not loaded")
        found.append(Attachment(**{key: each[key] for key in ("media_type", "data", "url", "name") if each.get(key) is not None}))
    return tuple(found)
