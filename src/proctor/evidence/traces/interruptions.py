"""What a trace shows to have broken off, or to be open: calls in words, answers that are no end, runs that failed, several answers.

An answer is whole only where the model came to its end. One that was cut by a limit, or by an error, may have gone on with anything; one
that asks for a tool is not the last word; of several nobody knows which one was taken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared.spoken_calls import call_in_words
from proctor.evidence.shared.truncated_conversations import compare_choices
from proctor.evidence.traces.join_calls import Made
from proctor.evidence.traces.request import Exchange
from proctor.evidence.traces.requested_calls import find_asked
from proctor.evidence.traces.tree import SpanTree
from proctor.evidence.unknowns.account import Unknowns
from proctor.model.account import CALL_PARTS, Part
from proctor.model.show import show

_SAID: tuple[Part, ...] = ("answer", "nodes", "turns")
_WORKING = frozenset(("model", "tool", "agent"))
_ENDS_LOOP = re.compile(r"\[\[ ## next_tool_name ## \]\]\s*finish\b")
"""DSPy's word for no further tool."""


def mark_breaks(
    tree: SpanTree,
    exchanges: Sequence[Exchange],
    talk: Sequence[Exchange],
    entries: Sequence[Span],
    made: Sequence[Made],
    unknowns: Unknowns,
) -> None:
    """Doubt whatever a trace shows to have broken off or to be open."""
    _mark_spoken_calls(exchanges, made, unknowns)
    _mark_cut_answers(exchanges, talk, unknowns)
    _mark_choices(exchanges, unknowns)
    _mark_failed_run(tree, entries, unknowns)
    _mark_blind_agents(tree, exchanges, unknowns)


def _mark_spoken_calls(exchanges: Sequence[Exchange], made: Sequence[Made], unknowns: Unknowns) -> None:
    """Doubt the calls of a trace in which a model wrote some into its text, unless spans of tools show that as many ran."""
    # What a model is given repeats what was said, often in other words; it counts where an answer was not captured.
    silent = any(exchange.said is None for exchange in exchanges)
    texts = {
        message.text: exchange.span.name
        for exchange in exchanges
        for message in (*((exchange.given or ()) if silent else ()), *(exchange.said or ()))
        if message.role == "assistant" and message.text and not message.calls
    }
    spoken = [text for text in texts if call_in_words(text) is not None and not _ENDS_LOOP.search(text)]
    # Tools that ran and that no answer asked for in its own form are the
    # calls in words, carried out: as many of them explain all the texts.
    if spoken and len(spoken) > len(made) - len(find_asked(exchanges)):
        why = f"a text in the span {show(texts[spoken[0]])} looks like a tool call in words, which nobody reads"
        unknowns.mark_parts(CALL_PARTS, why)


def _mark_cut_answers(exchanges: Sequence[Exchange], talk: Sequence[Exchange], unknowns: Unknowns) -> None:
    """Doubt what a model may have gone on with where its answer broke off: calls after an error, words after any cut."""
    telling = [exchange for exchange in talk if exchange.said is not None]
    for exchange in exchanges:
        why = exchange.explain_cut()
        if why is None:
            continue
        told = f"the answer in the span {show(exchange.span.name)} {why}"
        if exchange.breaks_off():
            unknowns.mark_parts(CALL_PARTS, told)
        # Only the last answer of the talk is that of the run; a cut before it spoils the turn that it belongs to.
        if telling and exchange is telling[-1]:
            unknowns.mark_parts(_SAID, told)
        elif exchange in telling:
            unknowns.mark("turns", told)


def _mark_choices(exchanges: Sequence[Exchange], unknowns: Unknowns) -> None:
    """Doubt which answer was taken where a model was asked for several."""
    for exchange in exchanges:
        wanted = max(step.choices for step in exchange.steps)
        if wanted < 2:
            continue
        at, told = f"the span {show(exchange.span.name)}", [message for message in exchange.said or () if message.role == "assistant"]
        if len(told) == wanted:
            compare_choices(told, at, unknowns)
        else:
            unknowns.mark_parts((*CALL_PARTS, "answer"), f"{at} asked for {wanted} answers and tells {len(told)} of them")


def _mark_failed_run(tree: SpanTree, entries: Sequence[Span], unknowns: Unknowns) -> None:
    """Doubt what a run had not come to when it ended in an error."""
    # OpenInference marks an agent with the error of a tool, also where the agent went on and answered.
    of_tools = {span.message for span in tree.list_kind("tool") if span.failed and span.message}
    for span in (*tree.roots, *entries):
        if (
            not span.failed
            or tree.find_kind(span) in ("model", "tool", "mcp")
            or (span.message in of_tools and tree.find_output_text(span))
        ):
            continue
        why = f"the span {show(span.name)} ended in an error{f': {span.message}' if span.message else ''}"
        unknowns.mark_parts((*CALL_PARTS, "answer", "nodes"), why)


def _mark_blind_agents(tree: SpanTree, exchanges: Sequence[Exchange], unknowns: Unknowns) -> None:
    """Doubt the calls of a trace in which an agent ran elsewhere and left no requests or tools."""
    for span in tree.list_kind("agent") if exchanges else ():
        if not span.is_remote:
            continue
        # Where parents form a circle a span lies below itself.
        below = tree.list_ids_below([span]) - {span.id}
        if not any(tree.steps[id].kind in _WORKING for id in below if id in tree.steps):
            unknowns.mark("tool_calls", f"no span tells what the agent of the span {show(span.name)} did")
