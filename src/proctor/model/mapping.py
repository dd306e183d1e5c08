"""Where the evidence is in a user-defined log format, and which parts of it are complete.

    evidence:
      map:
        input: $.request.text
        text: $.reply
        tool_calls: {each: "$.actions[*]", name: $.tool, arguments: $.params}
      complete: [tool_calls]

Every value of `map` is a path (RFC 9535). `evidence` may be written in a suite, a target, an agent of the service and `proctor.yaml`.
"""

from __future__ import annotations

import msgspec

from proctor.model.account import Part


class CallMap(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where tool calls are."""

    each: str
    """Selects the calls: `$.actions[*]`. The other paths start at one of them."""
    name: str | None = None
    arguments: str | None = None
    result: str | None = None
    error: str | None = None
    """What went wrong; a call without it, or with `false`, null or an empty text there, did not fail."""
    id: str | None = None
    duration_ms: str | None = None


class UsageMap(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where token counts are; several values are added."""

    input_tokens: str | None = None
    output_tokens: str | None = None
    total_tokens: str | None = None


class TurnMap(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the turns of a conversation are, or its messages if `role` is given."""

    each: str
    """Selects the turns or messages: `$.dialogue[*]`. The other paths start at one of them."""
    role: str | None = None
    """Who wrote a message (`user`, `customer`, `assistant`, `bot`, ...); each message of a user begins a turn."""
    agent: tuple[str | bool | int, ...] = ()
    """Values of `role` that mean the agent, in addition to the usual words: `[copilot, support-bot]`."""
    user: tuple[str | bool | int, ...] = ()
    """Values of `role` that mean the user."""
    input: str | None = None
    text: str | None = None
    """The agent's answer; with `role`, the text of the message."""
    tool_calls: CallMap | str | None = None


class EvidenceMap(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where each part of the evidence is. Parts that are not listed are read under their usual names."""

    record: str | None = None
    """Selects a document in the record, or several (`$.runs[*]`); each is read separately, and other paths start there."""
    input: str | None = None
    """The agent's input; the first of several values."""
    text: str | None = None
    """The answer; the last of several values."""
    body: str | None = None
    """The answer as JSON."""
    tool_calls: CallMap | str | None = None
    """The calls; a path alone selects calls with the usual field names."""
    turns: TurnMap | None = None
    usage: UsageMap | None = None
    duration_ms: str | None = None
    http_status: str | None = None
    error: str | None = None
    """Why the run failed; null, `false` or an absent value means that it did not."""
    case: str | None = None
    """The id or name of the case that the record answers."""
    model: str | None = None
    context: str | None = None
    group: str | None = None
    """Lines with the same value here belong to one run; all other paths then start at the list of its lines: `$[*]`."""


class EvidenceSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How recorded evidence is read."""

    map: EvidenceMap | None = None
    """Where the parts of the evidence are."""
    complete: tuple[Part, ...] = ()
    """Parts that the author declares complete in every recording: `tool_calls`, `answer`, ..."""


class DeclaredEvidence(EvidenceSettings, frozen=True, kw_only=True, omit_defaults=True):
    """How recorded evidence is read, and where that is written."""

    source: str = ""
    """The place of `complete`: `suite.yaml:3`, `--complete`."""


def merge_declared(*declared: DeclaredEvidence | None) -> DeclaredEvidence | None:
    """Return the first mapping and the first list of complete parts, or None if there is neither."""
    candidates = [setting for setting in declared if setting is not None]
    mapped = next((setting.map for setting in candidates if setting.map is not None), None)
    complete = next((setting for setting in candidates if setting.complete), None)
    if mapped is None and complete is None:
        return None
    return DeclaredEvidence(map=mapped, complete=complete.complete if complete else (), source=complete.source if complete else "")


def list_paths(value: msgspec.Struct, at: str = "") -> list[tuple[str, str]]:
    """Return every path of a mapping with its field: `("tool_calls.each", "$.actions[*]")`."""
    paths: list[tuple[str, str]] = []
    for field in value.__struct_fields__:
        member = getattr(value, field)
        if isinstance(member, str):
            paths.append((at + field, member))
        elif isinstance(member, msgspec.Struct):
            paths += list_paths(member, f"{at}{field}.")
    return paths
