"""Compares what was seen of an agent with what the model and the tools wrote down themselves.

A part is `seen` (all of it, and as it was), `unseen` (the evidence says that it is unknown, and what it holds nevertheless is true) or
`wrong`, with what differs. A claim that passes although the tools say otherwise is `green`: that must never be.
"""

from __future__ import annotations

import json
from typing import Any

from tests.frameworks.returns import model, shop

Found = dict[str, Any]
PARTS = ("calls", "answer", "usage")


def summarise(found: Found) -> dict[str, Any]:
    """Return what became of every part; nothing but the code where the case ended in an error."""
    if found["fault"] is not None:
        return {"error": found["fault"]["code"]}
    seen = {"calls": compare_calls(found), "answer": compare_answer(found), "usage": compare_usage(found)}
    said = {part: how for part, how in seen.items() if how != "seen"}
    also = list(dict.fromkeys(call["name"] for call in list_calls(found["evidence"]) if not model.is_shop(call["name"])))
    green = find_green(found)
    hidden = found["untrue"]
    return {**said, **({"also": also} if also else {}), **({"green": green} if green else {}), **({"hidden": hidden} if hidden else {})}


def find_green(found: Found) -> list[str]:
    """Return the claims that passed although they are untrue."""
    truth = found["truth"]
    whole = {"said": truth[-1]["said"], "done": [done for turn in truth for done in turn["done"]]}
    told: list[str] = []
    for claim, outcomes in found["verdicts"].items():
        scopes = [whole, *truth] if len(outcomes) > 1 else [whole]
        told += [claim for scope, outcome in zip(scopes, outcomes, strict=False) if outcome == "pass" and not _holds(claim, scope)]
    return told


def _holds(claim: str, turn: Found) -> bool:
    done = turn["done"]
    names = {call["name"] for call in done}
    if claim.startswith("response"):
        return turn["said"] not in (shop.CUT, shop.FILTERED)
    if claim == "no_tool_errors":
        return not any("error" in call for call in done)
    return claim.removeprefix("tool_not_called: ") not in names if claim.startswith("tool_not_called") else not names


def list_calls(evidence: Found) -> list[Found]:
    return evidence.get("tool_calls") or []


def compare_calls(found: Found) -> str:
    """Compare names, arguments, order and results, turn by turn where the evidence has the turns."""
    evidence, truth, unseen = found["evidence"], found["truth"], found["unseen"]
    turns = evidence.get("turns") or []
    pairs = [(list_calls(evidence), truth)]
    if len(truth) > 1 and len(turns) == len(truth):
        pairs = [(turn.get("tool_calls") or [], [one]) for turn, one in zip(turns, truth, strict=True)]
    for calls, happened in pairs:
        told = _compare_turn([call for call in calls if model.is_shop(call["name"])], happened, unseen)
        if told:
            return f"wrong: {told}"
    return "unseen" if {"tool_calls", "tool_arguments", "tool_results"} & set(unseen) else "seen"


def _compare_turn(calls: list[Found], truth: list[Found], unseen: Found) -> str:
    asked = [(name, given) for turn in truth for name, given in turn["asked"] if model.is_shop(name)]
    shown = [(call["name"], call.get("arguments")) for call in calls]
    as_asked = [(_own_name(name), given) for name, given in asked]
    as_shown = [(_own_name(name), given) for name, given in shown]
    if "tool_calls" in unseen:
        extra = [call for call in as_shown if call not in as_asked]
        return f"unknown, and shows {extra}" if extra and "tool_arguments" not in unseen else ""
    if as_asked != as_shown:
        return f"asked {as_asked}, seen {as_shown}"
    done = {(one["name"], json.dumps(one["arguments"])): one for turn in truth for one in turn["done"]}
    for call in calls if "tool_results" not in unseen else []:
        told = _compare_result(call, done.get((_own_name(call["name"]), json.dumps(call.get("arguments")))))
        if told:
            return told
    return ""


def _own_name(name: str) -> str:
    return "lookup_order" if name.endswith("lookup_order") else "refund"


def _compare_result(call: Found, done: Found | None) -> str:
    result, error = call.get("result"), call.get("error")
    if done is None:
        # Asked for, and never done: whoever ended the run may have written something in its place.
        return f"{call['name']} was never run, and shows {result!r}" if "shipped" in str(result) else ""
    if "error" in done:
        # Some frameworks keep the words of the exception from the model, and so from us.
        return "" if error else f"{call['name']} raised, and shows {result!r}"
    return "" if done["result"] in str(result) and not error else f"{call['name']} gave {done['result']!r}, and shows {result!r}, {error!r}"


def compare_answer(found: Found) -> str:
    """Compare the answer of every turn with what the model said last."""
    evidence, truth = found["evidence"], found["truth"]
    if "answer" in found["unseen"]:
        return "unseen"
    turns = evidence.get("turns") or []
    pairs = [(evidence, truth[-1])]
    if len(truth) > 1 and len(turns) == len(truth):
        pairs = list(zip(turns, truth, strict=True))
    for shown, turn in pairs:
        said = turn["said"]
        if said == shop.FORM and shown.get("body") == model.FORM:
            continue
        numbers = [int(word.strip("?.")) for word in said.split() if word.strip("?.").isdigit()]
        text = shown.get("text")
        if said in (shop.FORM, shop.BREAKS) or text is None or text.strip() != model.say(said, numbers):
            return f"other: {str(text)[:160]}"
    return "seen"


def compare_usage(found: Found) -> str:
    """Compare the tokens with those that the model reported."""
    usage, unseen = found["evidence"].get("usage"), found["unseen"]
    if "usage" in unseen or usage is None:
        return "unseen"
    requests = sum(turn["requests"] for turn in found["truth"])
    wanted = (requests * model.INPUT_TOKENS, requests * model.OUTPUT_TOKENS)
    shown = (usage.get("input_tokens"), usage.get("output_tokens"))
    return "seen" if shown == wanted else f"wrong: {wanted} spent, {shown} seen"
