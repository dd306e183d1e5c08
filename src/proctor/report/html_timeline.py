"""Evidence as a timeline: what was said, which tools were called with what, which steps ran, in order.

Every step knows the pointers by which verdicts may speak of it, so that a reader can go from a finding to the place it is about. A
call can go by several: `$.turns[1].tool_calls[0]` is also the third of all calls, `$.tool_calls[2]`. The number of steps is bounded;
what is left out is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proctor.model.evidence import Evidence, EvidenceTurn, Json, Node, ToolCall, Usage
from proctor.report.html_text import duration_words, write_block, write_label, write_pretty, write_tool_result

MOST_STEPS = 200
"""Steps of one run in the page."""
MOST_CHARACTERS = 150_000
"""Characters of one run in the page: thousands of cases share one file."""

Step = dict[str, Json]


def build_timeline(evidence: Evidence) -> list[Step]:
    """Return the steps of a run, in order."""
    steps: list[Step] = []
    left_out = 0
    room = MOST_CHARACTERS
    for step in _iterate_steps(evidence):
        room -= sum(len(value) for value in step.values() if isinstance(value, str))
        if len(steps) < MOST_STEPS and room > 0:
            steps.append(step)
        else:
            left_out += 1
    if left_out:
        steps.append({"kind": "note", "text": f"{left_out:,} more steps are not shown here"})
    if evidence.error:
        steps.append({"kind": "broken", "text": write_block(evidence.error), "at": ["$.error"]})
    return steps


def list_other_evidence(evidence: Evidence) -> list[list[str]]:
    """Return what the evidence holds beside the conversation: a label and the value as text."""
    rest: list[tuple[str, Json]] = [
        ("response body", evidence.body),
        ("context", evidence.context),
        ("available tools", evidence.available_tools),
        ("renders", evidence.renders),
        ("state left behind", evidence.state),
        ("metadata", evidence.metadata),
    ]
    return [[name, write_pretty(value)] for name, value in rest if value is not None and value != {} and value != ()]


def usage_words(usage: Usage | None) -> str:
    """Return tokens in words: `120 tokens in, 80 out`; empty where nothing was recorded."""
    if usage is None:
        return ""
    if usage.input_tokens is not None and usage.output_tokens is not None:
        return f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
    total = usage.total()
    return "" if total is None else f"{total:,} tokens"


def list_facts(observed: Evidence | EvidenceTurn) -> list[str]:
    """List the status, time and tokens of a run or a turn, as far as they were recorded."""
    return [
        *([] if observed.http_status is None else [f"HTTP {observed.http_status}"]),
        *([] if observed.duration_ms is None else [duration_words(observed.duration_ms)]),
        *filter(None, [usage_words(observed.usage)]),
    ]


def _iterate_steps(evidence: Evidence) -> Iterator[Step]:
    turns = evidence.turns
    if not turns:
        yield from _iterate_exchange(evidence, "$", evidence.tool_calls, 0)
        return
    before = 0
    for number, turn in enumerate(turns):
        at = f"$.turns[{number}]"
        yield {"kind": "turn", "name": f"Turn {number + 1} of {len(turns)}", "facts": list_facts(turn), "at": [at]}
        last = number == len(turns) - 1
        yield from _iterate_exchange(turn, at, turn.tool_calls, before, also="$" if last else None)
        before += len(turn.tool_calls or ())


def _iterate_exchange(
    observed: Evidence | EvidenceTurn, at: str, calls: tuple[ToolCall, ...] | None, before: int, also: str | None = None
) -> Iterator[Step]:
    """Yield one message and everything until the answer; `before` calls of the whole run were made earlier."""
    if observed.input is not None and observed.input != "":
        asked = observed.input
        yield {"kind": "user", "text": write_block(asked) if isinstance(asked, str) else write_pretty(asked), "at": [f"{at}.input"]}
    root: list[tuple[int, ToolCall]] = list(enumerate(calls or ()))
    for number, node in enumerate(observed.nodes or ()):
        place = f"{at}.nodes[{number}]"
        yield _build_node_step(node, place)
        for index, call in enumerate(node.tool_calls):
            same = next((entry for entry in root[:MOST_STEPS] if entry[1] == call), None)
            places = [f"{place}.tool_calls[{index}]"]
            if same is not None:
                # The same call is listed for the run as a whole; it is shown once.
                root.remove(same)
                places += _call_places(at, same[0], before)
            yield _call_step(call, places, inside=True)
    for index, call in root:
        yield _call_step(call, _call_places(at, index, before))
    if observed.text is not None and observed.text != "":
        places = [f"{at}.text", f"{at}.body"] if also is None else [f"{at}.text", f"{at}.body", f"{also}.text", f"{also}.body"]
        yield {"kind": "agent", "text": write_block(observed.text), "at": places}
    elif observed.body is not None:
        yield {"kind": "agent", "text": write_pretty(observed.body), "at": [f"{at}.body"]}


def _call_places(at: str, index: int, before: int) -> list[str]:
    own = f"{at}.tool_calls[{index}]"
    return [own] if at == "$" else [own, f"$.tool_calls[{before + index}]"]


def _call_step(call: ToolCall, places: Sequence[str], *, inside: bool = False) -> Step:
    failure = call.failure()
    step: Step = {
        "kind": "call",
        "name": write_label(call.name),
        "arguments": "" if call.arguments == {} else write_pretty(call.arguments),
        "at": places,
    }
    if inside:
        step["inside"] = True
    if call.server:
        step["server"] = write_label(call.server)
    if call.duration_ms is not None:
        step |= {"ms": call.duration_ms, "took": duration_words(call.duration_ms)}
    if failure is not None:
        step["error"] = write_pretty(failure)
        if call.failure_kind():
            step["error_kind"] = write_label(call.failure_kind() or "")
    if call.result is not None and (failure is None or call.error):
        step["result"] = write_tool_result(call.result)
    return step


def _build_node_step(node: Node, place: str) -> Step:
    step: Step = {"kind": "node", "name": write_label(node.name), "status": write_label(node.status), "at": [place]}
    if node.type:
        step["type"] = write_label(node.type)
    if node.duration_ms is not None:
        step |= {"ms": node.duration_ms, "took": duration_words(node.duration_ms)}
    for name, value in (("input", node.input), ("parameters", node.parameters), ("output", node.output), ("error", node.error)):
        if value is not None and value != {}:
            step[name] = write_pretty(value)
    if node.notes:
        step["notes"] = [write_label(note, 400) for note in node.notes[:10]]
    return step
