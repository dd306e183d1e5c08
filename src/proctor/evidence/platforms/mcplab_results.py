"""MCPLab's `results.json`: the whole answers of a run. It is no evidence itself; it completes what `trace.jsonl` in the same folder
has cut, and shows where the trace lacks a call.
"""

from __future__ import annotations

import msgspec

from proctor.evidence.platforms.mcplab import CUT
from proctor.evidence.values.access import SHOWN, dict_or_empty, list_of, text_or_none
from proctor.evidence.values.text import parse_json
from proctor.model.account import Part
from proctor.model.evidence import Evidence, Json
from proctor.model.show import show


def is_results(document: Json) -> bool:
    """Return whether this is the `results.json` of a run."""
    return isinstance(document, dict) and {"metadata", "summary", "scenarios"} <= document.keys()


def is_cut(evidence: Evidence) -> bool:
    """Return whether the answer was cut when the trace was written, and nothing else is wrong with it."""
    return evidence.account is not None and evidence.account.unknown.get("answer") == CUT


def restore_whole_answer(evidence: Evidence, results: Json) -> Evidence:
    """Return the evidence with the answer from the results of the same run, if the trace has cut it."""
    account = evidence.account
    if account is None or not is_cut(evidence) or evidence.text is None:
        return evidence
    whole = _find_whole_answer(evidence, results)
    # Only an answer that goes on where the trace stops is the same answer.
    if whole is None or not whole.startswith(evidence.text) or len(whole) == len(evidence.text):
        return evidence
    unknown: dict[Part, str] = {part: why for part, why in account.unknown.items() if part != "answer"}
    known = msgspec.structs.replace(account, unknown=unknown, notes=(*account.notes, "the answer is that of results.json"))
    return msgspec.structs.replace(evidence, text=whole, body=parse_json(whole), account=known)


def compare_calls(evidence: Evidence, results: Json) -> Evidence:
    """Return the evidence with its calls marked unknown if the results of the same run name a tool that the trace lacks."""
    account = evidence.account
    run = _find_run(evidence, results)
    named = [name for key in ("tool_calls", "tool_sequence") for name in list_of(run.get(key)) if isinstance(name, str)]
    # Results may name a tool with or without its server.
    shown = {
        name for call in evidence.tool_calls or () for name in (call.name, f"{call.server}__{call.name}", f"{call.server}:{call.name}")
    }
    missing = next((name for name in named if name not in shown), None)
    if account is None or missing is None or evidence.tool_calls is None or "tool_calls" in account.unknown:
        return evidence
    why = f"results.json lists a call of {show(missing, SHOWN)}, the trace does not"
    return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, unknown={**account.unknown, "tool_calls": why}))


def _find_whole_answer(evidence: Evidence, results: Json) -> str | None:
    return text_or_none(_find_run(evidence, results).get("final_text"))


def _find_run(evidence: Evidence, results: Json) -> dict[str, Json]:
    """Return the run in the results that a line of the trace belongs to; empty if it is not there."""
    wanted = (evidence.case, evidence.metadata.get("agent"), evidence.metadata.get("run_index"))
    for scenario in map(dict_or_empty, list_of(dict_or_empty(results).get("scenarios"))):
        for run in map(dict_or_empty, list_of(scenario.get("runs"))):
            if (scenario.get("scenario_id"), scenario.get("agent"), run.get("run_index")) == wanted:
                return run
    return {}
