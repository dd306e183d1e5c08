"""Compares the evidence of an agent with the logs of the model and the tools.

A part is `seen` (complete and correct), `unseen` (the evidence marks it unknown, and everything in it is true) or
`wrong`, with the difference. A claim that passes although the tools contradict it is `green`, which must never happen.
"""

from __future__ import annotations

import json
from typing import Any

from tests.frameworks.returns import model, shop

Found = dict[str, Any]
PARTS = ("calls", "answer", "usage")


def summarise(found: Found) -> dict[str, Any]:
    """Return the state of every part, or only the code if the case ended in an error."""
    if found["fault"] is not None:
        return {"error": found["fault"]["code"]}
    seen = {"calls": compare_calls(found), "answer": compare_answer(found), "usage": compare_usage(found)}
    parts = {part: how for part, how in seen.items() if how != "seen"}
    also = list(dict.fromkeys(call["name"] for call in list_calls(found["evidence"]) if not model.is_shop(call["name"])))
    green = find_green(found)
    hidden = found["untrue"]
    return {**parts, **({"also": also} if also else {}), **({"green": green} if green else {}), **({"hidden": hidden} if hidden else {})}


def find_green(found: Found) -> list[str]:
    """Return the claims that passed although they are untrue."""
    truth = found["truth"]
    whole = {"message": truth[-1]["message"], "done": [done for turn in truth for done in turn["done"]]}
    passed: list[str] = []
    for claim, outcomes in found["verdicts"].items():
        scopes = [whole, *truth] if len(outcomes) > 1 else [whole]
        passed += [claim for scope, outcome in zip(scopes, outcomes, strict=False) if outcome == "pass" and not _holds(claim, scope)]
    return passed


def _holds(claim: str, turn: Found) -> bool:
    done = turn["done"]
    names = {call["name"] for call in done}
    if claim.startswith("response"):
        return turn["message"] not in (shop.CUT, shop.FILTERED)
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
        difference = _compare_turn([call for call in calls if model.is_shop(call["name"])], happened, unseen)
        if difference:
            return f"wrong: {difference}"
    return "unseen" if {"tool_calls", "tool_arguments", "tool_results"} & set(unseen) else "seen"


def _compare_turn(calls: list[Found], truth: list[Found], unseen: Found) -> str:
    requested = [(name, given) for turn in truth for name, given in turn["requested"] if model.is_shop(name)]
    shown = [(call["name"], call.get("arguments")) for call in calls]
    expected_calls = [(_own_name(name), given) for name, given in requested]
    shown_calls = [(_own_name(name), given) for name, given in shown]
    if "tool_calls" in unseen:
        extra = [call for call in shown_calls if call not in expected_calls]
        return f"unknown, and shows {extra}" if extra and "tool_arguments" not in unseen else ""
    if expected_calls != shown_calls:
        return f"requested {expected_calls}, seen {shown_calls}"
    done = {(one["name"], json.dumps(one["arguments"])): one for turn in truth for one in turn["done"]}
    for call in calls if "tool_results" not in unseen else []:
        difference = _compare_result(call, done.get((_own_name(call["name"]), json.dumps(call.get("arguments")))))
        if difference:
            return difference
    return ""


def _own_name(name: str) -> str:
    return "lookup_order" if name.endswith("lookup_order") else "refund"


def _compare_result(call: Found, done: Found | None) -> str:
    result, error = call.get("result"), call.get("error")
    if done is None:
        # Requested but never run: the code that ended the run may have written a result.
        return f"{call['name']} was never run, and shows {result!r}" if "shipped" in str(result) else ""
    if "error" in done:
        # Some frameworks hide the text of the exception from the model, and so from us.
        return "" if error else f"{call['name']} raised, and shows {result!r}"
    return "" if done["result"] in str(result) and not error else f"{call['name']} gave {done['result']!r}, and shows {result!r}, {error!r}"


def compare_answer(found: Found) -> str:
    """Compare the answer of every turn with the model's last reply."""
    evidence, truth = found["evidence"], found["truth"]
    if "answer" in found["unseen"]:
        return "unseen"
    turns = evidence.get("turns") or []
    pairs = [(evidence, truth[-1])]
    if len(truth) > 1 and len(turns) == len(truth):
        pairs = list(zip(turns, truth, strict=True))
    for shown, turn in pairs:
        message = turn["message"]
        if message == shop.FORM and shown.get("body") == model.FORM:
            continue
        numbers = [int(word.strip("?.")) for word in message.split() if word.strip("?.").isdigit()]
        text = shown.get("text")
        if message in (shop.FORM, shop.BREAKS) or text is None or text.strip() != model.say(message, numbers):
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
