"""Evidence as a timeline: messages, tool calls and steps in order.

Every step has the pointers that verdicts may use for it; a call has several: `$.turns[1].tool_calls[0]` is also `$.tool_calls[2]`. The
number of steps is limited. Marked texts have their pieces (`marked_text`) under `marked`; shortened texts have their place under `whole`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proctor.model.evidence import Evidence, EvidenceTurn, Json, Node, ToolCall, Usage
from proctor.report.blocks.marked_text import Marks, Piece, select_marks, write_marked_text, write_marked_value
from proctor.report.words.html_text import MOST_TEXT, duration_words, write_block, write_label, write_pretty, write_tool_result
from proctor.report.words.tallies import describe_user
from proctor.report.words.wording import count_noun

MOST_STEPS = 200
"""Steps of one run in the page."""
MOST_CHARACTERS = 150_000
"""Characters of one run: thousands of cases share one file."""

Step = dict[str, Json]


def build_timeline(evidence: Evidence, marks: Marks | None = None) -> list[Step]:
    """Return the steps of a run; `marks` are ranges of verdicts by place."""
    steps: list[Step] = []
    left_out = 0
    budget = MOST_CHARACTERS
    for step in _iterate_steps(evidence, marks or {}):
        budget -= sum(len(value) for value in step.values() if isinstance(value, str))
        if len(steps) < MOST_STEPS and budget > 0:
            steps.append(step)
        else:
            left_out += 1
    if left_out:
        steps.append({"kind": "note", "text": f"{count_noun(left_out, 'more step is', 'more steps are')} not shown here"})
    if evidence.simulated_user is not None:
        steps.append({"kind": "note", "text": write_block(f"simulated user: {describe_user(evidence.simulated_user)}")})
    if evidence.error:
        steps.append({"kind": "broken", "text": write_block(evidence.error), "at": ["$.error"]})
    return steps


def list_other_evidence(evidence: Evidence, marks: Marks | None = None) -> list[list[Json]]:
    """Return evidence other than the conversation: label, text, place, and pieces if marked."""
    rest: list[tuple[str, str, Json]] = [
        ("response body", "$.body", evidence.body),
        ("context", "$.context", evidence.context),
        ("available tools", "$.available_tools", evidence.available_tools),
        ("renders", "$.renders", evidence.renders),
        ("final state", "$.state", evidence.state),
        ("metadata", "$.metadata", evidence.metadata),
    ]
    listed: list[list[Json]] = []
    for name, place, value in rest:
        if value is not None and value != {} and value != ():
            place_marks = select_marks(marks or {}, (place,))
            pieces = write_marked_value(value, place_marks) if place_marks else None
            listed.append([name, write_pretty(value), place] if pieces is None else [name, _join_pieces(pieces), place, pieces])
    return listed


def _join_pieces(pieces: Sequence[Piece]) -> str:
    return "".join(piece if isinstance(piece, str) else str(piece["text"]) for piece in pieces)


def _add_marks(step: Step, name: str, pieces: list[Piece]) -> Step:
    """Return the step with a text in pieces and in full."""
    return {**step, name: _join_pieces(pieces), "marked": {**step.get("marked", {}), name: pieces}}


def usage_words(usage: Usage | None) -> str:
    """Return tokens: `120 tokens in, 80 out`; empty if not recorded."""
    if usage is None:
        return ""
    if usage.input_tokens is not None and usage.output_tokens is not None:
        return f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
    total = usage.total()
    return "" if total is None else count_noun(total, "token")


def list_facts(observed: Evidence | EvidenceTurn) -> list[str]:
    """List status, time and tokens of a run or turn, if recorded."""
    return [
        *([] if observed.http_status is None else [f"HTTP {observed.http_status}"]),
        *([] if observed.duration_ms is None else [duration_words(observed.duration_ms)]),
        *filter(None, [usage_words(observed.usage)]),
    ]


def _iterate_steps(evidence: Evidence, marks: Marks) -> Iterator[Step]:
    turns = evidence.turns
    if not turns:
        yield from _iterate_exchange(evidence, "$", marks, 0)
        return
    before = 0
    for number, turn in enumerate(turns):
        at = f"$.turns[{number}]"
        name = f"Turn {number + 1:,} of {len(turns):,}"
        yield {"kind": "turn", "name": name, "facts": list_facts(turn), "at": [at], **_measure_turn(turn)}
        # The last answer belongs to both the turn and the run.
        last = number == len(turns) - 1
        yield from _iterate_exchange(turn, at, marks, before, also="$" if last else None)
        before += len(turn.tool_calls or ())


def _measure_turn(turn: EvidenceTurn) -> Step:
    took: Step = {} if turn.duration_ms is None else {"turn_ms": turn.duration_ms}
    return took | ({"tokens": usage_words(turn.usage)} if turn.usage is not None else {})


def _iterate_exchange(observed: Evidence | EvidenceTurn, at: str, marks: Marks, before: int, also: str | None = None) -> Iterator[Step]:
    """Yield one message and the steps up to the answer; `before` is the number of earlier calls."""
    if observed.input is not None and observed.input != "":
        question = observed.input
        yield {
            "kind": "user",
            "text": write_block(question) if isinstance(question, str) else write_pretty(question),
            "at": [f"{at}.input"],
        }
    root: list[tuple[int, ToolCall]] = list(enumerate(observed.tool_calls or ()))
    for number, node in enumerate(observed.nodes or ()):
        place = f"{at}.nodes[{number}]"
        yield _build_node_step(node, place, marks)
        for index, call in enumerate(node.tool_calls):
            # Limited: comparing each call of a node with all calls is quadratic.
            listed_call = next((entry for entry in root[:MOST_STEPS] if entry[1] == call), None)
            places = [f"{place}.tool_calls[{index}]"]
            if listed_call is not None:
                # A call listed for both the node and the run is shown once.
                root.remove(listed_call)
                places += _list_call_places(at, listed_call[0], before)
            yield _build_call_step(call, places, marks, is_nested=True)
    for index, call in root:
        yield _build_call_step(call, _list_call_places(at, index, before), marks)
    roots = [at] if also is None else [at, also]
    if observed.text is not None and observed.text != "":
        yield _build_answer_step(observed.text, [f"{root}.{name}" for root in roots for name in ("text", "body")], marks)
    elif observed.body is not None:
        step: Step = {"kind": "agent", "text": write_pretty(observed.body), "at": [f"{root}.body" for root in roots]}
        body_marks = select_marks(marks, (f"{root}.body" for root in roots))
        yield _add_marks(step, "text", write_marked_value(observed.body, body_marks)) if body_marks else step


def _build_answer_step(text: str, places: list[str], marks: Marks) -> Step:
    step: Step = {"kind": "agent", "text": write_block(text), "at": places}
    if len(text) > MOST_TEXT:
        step |= {"whole": places[0], "length": len(text)}
    answer_marks = select_marks(marks, (place for place in places if place.endswith(".text"))).get("", ())
    return _add_marks(step, "text", write_marked_text(text, answer_marks)) if answer_marks else step


def _list_call_places(at: str, index: int, before: int) -> list[str]:
    place = f"{at}.tool_calls[{index}]"
    return [place] if at == "$" else [place, f"$.tool_calls[{before + index}]"]


def _build_call_step(call: ToolCall, places: Sequence[str], marks: Marks, *, is_nested: bool = False) -> Step:
    failure = call.failure()
    step: Step = {
        "kind": "call",
        "name": write_label(call.name),
        "arguments": "" if call.arguments == {} else write_pretty(call.arguments),
        "at": places,
    }
    call_marks = select_marks(marks, (f"{place}.arguments" for place in places))
    if call_marks:
        step = _add_marks(step, "arguments", write_marked_value(call.arguments, call_marks))
    step |= {"inside": True} if is_nested else {}
    step |= ({"server": write_label(call.server)} if call.server else {}) | _time_step(call.duration_ms)
    if failure is not None:
        kind = call.failure_kind()
        step |= {"error": write_pretty(failure), **({"error_kind": write_label(kind)} if kind else {})}
    if call.result is not None and (failure is None or call.error):
        step["result"] = write_tool_result(call.result)
        call_marks = select_marks(marks, (f"{place}.result" for place in places))
        step = _add_marks(step, "result", write_marked_value(call.result, call_marks)) if call_marks else step
    return step


def _time_step(ms: float | None) -> Step:
    return {} if ms is None else {"ms": ms, "took": duration_words(ms)}


def _build_node_step(node: Node, place: str, marks: Marks) -> Step:
    step: Step = {"kind": "node", "name": write_label(node.name), "status": write_label(node.status), "at": [place]}
    step |= {"type": write_label(node.type)} if node.type else {}
    step |= _time_step(node.duration_ms) | ({"tokens": usage_words(node.usage)} if node.usage is not None else {})
    for name, value in (("input", node.input), ("parameters", node.parameters), ("output", node.output), ("error", node.error)):
        if value is not None and value != {}:
            node_marks = select_marks(marks, (f"{place}.{name}",))
            step = _add_marks(step, name, write_marked_value(value, node_marks)) if node_marks else {**step, name: write_pretty(value)}
    if node.notes:
        step["notes"] = [write_label(note, 400) for note in node.notes[:10]]
    return step
