"""OpenAI's Responses API and Agents SDK: items in a row, each a message, a call or an output.

Everything the assistant does until the user or a tool follows is one message. Tools that the provider runs itself (`web_search_call`) are
calls, named without `_call`. An `item_reference` and a compaction stand for items that are not in the list; a response that goes on from
another, or belongs to a stored conversation, leaves out what came before it.

Tried with openai 2 (Python) and 6 (JavaScript), openai-agents 0.6 (`to_input_list()`) and @openai/agents 0.3 (`result.history`).
"""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.messages.envelope import Entries, Opened, join_messages, list_with_paths, without
from proctor.evidence.shared.blocks import RAISES, Draft, find_action
from proctor.evidence.shared.conversation import Message
from proctor.evidence.shared.message_reader import read_message
from proctor.evidence.shared.truncated_conversations import mark_earlier, mark_end
from proctor.evidence.shared.usage import find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.endings import read_status
from proctor.evidence.unknowns.fields import CONTENT_PARTS
from proctor.evidence.values.access import dict_or_empty, list_of, text_or_none
from proctor.model.evidence import Json

_OWN_CALLS = ("function_call", "custom_tool_call", "mcp_call", "hosted_tool_call")
_OWN_RESULTS = ("function_call_output", "custom_tool_call_output", "function_call_result", "tool_search_output", "computer_call_result")
_OWN_OTHERS = ("reasoning", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response")
_ELSEWHERE = ("previous_response_id", "conversation")


def is_item(entry: Json) -> bool:
    """Return whether an entry can only be an item of the Responses API."""
    item = dict_or_empty(entry)
    kind = item.get("type")
    # `contents` marks a message of Agent Framework, which has a `type` as well.
    if not isinstance(kind, str) or isinstance(item.get("contents"), list):
        return False
    if (
        kind in (*_OWN_CALLS, *_OWN_RESULTS, *_OWN_OTHERS)
        or find_action(kind) in ("hosted", "new_call", "gap")
        or kind.endswith("_call_output")
    ):
        return "role" not in item
    parts = list_of(item.get("content"))
    texts = ("output_text", "input_text", "refusal")
    return kind == "message" and "role" in item and (not parts or any(dict_or_empty(part).get("type") in texts for part in parts))


def open_response(document: dict[str, Any]) -> Opened | None:
    """Find input and output of a response, in order."""
    output, given, sent = document.get("output"), document.get("input"), document.get("messages", [])
    if document.get("object") != "response" and not (isinstance(output, list) and any(is_item(entry) for entry in output)):
        return None
    if not isinstance(output, list):
        raise EvidenceError("$.output: a response without its items")
    if not isinstance(sent, list) or not (given is None or isinstance(given, (str, list))):
        raise EvidenceError(f"$.{'input' if isinstance(sent, list) else 'messages'}: expected text or a list of items")
    question: list[tuple[str, Json]] = [("$.input", {"type": "message", "role": "user", "content": given})]
    before = question if isinstance(given, str) else list_with_paths(given or [], "$.input")
    unknowns, status = Unknowns(), document.get("status")
    if status not in (None, "completed", "incomplete") and read_status(status) != "failed":
        mark_end(unknowns, "$.status", status)
    for key in _ELSEWHERE:
        if document.get(key):
            mark_earlier(unknowns, f"$.{key}: what came before is kept by the provider and not recorded here")
    taken = ("output", "input", "messages", *_ELSEWHERE, "text", "output_text", "object")
    return Opened(
        entries=[*list_with_paths(sent, "$.messages"), *before, *list_with_paths(output, "$.output")],
        rest=without(document, *taken, *(("status",) if read_status(status) != "failed" else ())),
        usage=find_usage(document),
        model=text_or_none(document.get("model")),
        unknowns=unknowns,
    )


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read items; what the assistant does in a row is one message."""
    found: list[Message] = []
    for at, item in entries:
        message = _read_item(item, at, unknowns)
        if message is None:
            continue
        if message.role == "assistant" and found and found[-1].role == "assistant":
            found[-1] = join_messages(found[-1], message)
        else:
            found.append(message)
    return found


def _read_item(item: dict[str, Any], at: str, unknowns: Unknowns) -> Message | None:
    kind, status = item.get("type"), item.get("status")
    if status != "incomplete" and read_status(status) == "running":
        mark_end(unknowns, f"{at}.status", status)
    if "role" in item or kind in ("message", None):
        if kind not in ("message", None):
            unknowns.mark_unrecognised(CONTENT_PARTS, f"{at}: unrecognised kind {kind!r} of a message")
        return read_message(item, at, unknowns, RAISES)
    draft = Draft("assistant", at, unknowns, RAISES)
    draft.add_block(item, at)
    if not (draft.calls or draft.results or draft.texts):
        return None
    if draft.results and not draft.calls:
        draft.role = "tool"
    # The Agents SDK records the model of each item, where it speaks to others than the Responses API.
    draft.model = text_or_none(dict_or_empty(item.get("provider_data")).get("model"))
    return draft.build()
