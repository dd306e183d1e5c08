"""Runs the agents of one framework in its environment, and writes the facts and the evidence of every case.

`python -m tests.frameworks.returns.drive NAME FILE [CASE...]`. The facts are the calls that the model requested and the log of the tools;
the evidence comes with verdicts of claims that must never pass for an agent whose tool calls are unknown.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import msgspec

import proctor
from proctor.cassettes.ports import LIVE
from proctor.evidence.unknowns.account import find_part_states
from proctor.model.evidence import Evidence
from proctor.targets.local.callable import CallableTarget, keep_current_exchange
from proctor.targets.shared.faults import TargetFault
from tests.frameworks.agents import shared_loop
from tests.frameworks.returns import model, shop
from tests.frameworks.returns.pick import list_untrue_parts
from tests.targets.loopback import attempt

ABSENT_TEXT = "response_not_contains: zebra"
"""Passes for every complete answer of the model; a truncated one may have contained the text."""
CLAIMS = ("no_tools_called", "tool_not_called: lookup_order", "tool_not_called: refund", "no_tool_errors", "tools_exactly: []", ABSENT_TEXT)


class WatchedTarget(CallableTarget):
    """A function whose calls are logged: the calls the model requested, and the runs of the tools."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.turns: list[dict[str, Any]] = []
        self.untrue: list[str] = []
        """Parts of the returned value that claim to show every call, and hide one."""

    async def _call(self, message: Any, history: Any, watch: Any) -> Any:
        done, calls, requests = len(shop.DONE), len(model.SEEN.calls), model.SEEN.requests
        try:
            return await super()._call(message, history, watch)
        finally:
            turn = {"done": shop.DONE[done:], "requested": model.SEEN.calls[calls:], "requests": model.SEEN.requests - requests}
            self.turns.append({"message": message.content, **turn})
            self._message = message

    def _read_evidence(self, answer: object) -> Evidence:
        # Calls of an expert inside a tool are invisible even in the whole value.
        if self.turns[-1]["done"] and self._message.content != shop.EXPERT:
            self.untrue += list_untrue_parts(
                answer, lambda part: keep_current_exchange(super(WatchedTarget, self)._read_evidence(part), self._message)
            )
        return super()._read_evidence(answer)


def drive(case: shop.Case) -> dict[str, Any]:
    """Run one case; return the truth and the evidence."""
    shop.DONE.clear()
    model.SEEN.clear()
    target = WatchedTarget("agent", case.function, timeout_s=60)
    found: dict[str, Any] = {"evidence": None, "fault": None, "verdicts": {}}
    try:
        evidence = shared_loop().run_until_complete(target.run(attempt(*case.messages, timeout_s=120), LIVE))
    except TargetFault as fault:
        evidence = None
        found["fault"] = {"code": fault.code, "message": fault.message}
    if evidence is not None:
        states = find_part_states(evidence)
        found["evidence"] = msgspec.to_builtins(evidence)
        found["unseen"] = {part: state.why for part, state in states.items() if state.status == "unknown"}
        found["verdicts"] = decide(evidence, case.messages)
    return {**found, "truth": target.turns, "untrue": target.untrue}


def decide(evidence: Evidence, messages: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the outcomes of every claim: for the whole, then for each turn."""
    claims = "".join(f"      - {claim}\n" for claim in CLAIMS)
    text = f"proctor: 1\ncases:\n  - id: case-1\n    expect:\n{claims}"
    if len(messages) > 1:
        inner = "".join(f"          - {claim}\n" for claim in CLAIMS)
        text += "    turns:\n" + "".join(f"      - input: {json.dumps(one)}\n        expect:\n{inner}" for one in messages)
    else:
        text += f"    input: {json.dumps(messages[0])}\n"
    result = proctor.check(proctor.parse_suite(text), evidence)
    found: dict[str, list[str]] = {}
    for place, assertion in enumerate(sorted(result.cases[0].assertions, key=_place)):
        found.setdefault(CLAIMS[place % len(CLAIMS)], []).append(assertion.outcome)
    return found


def _place(assertion: Any) -> int:
    return -1 if assertion.assertion.turn is None else assertion.assertion.turn


def set_variables(address: str) -> None:
    """Point every provider's client at the model, before a framework is imported."""
    os.environ.update(
        {
            "NO_PROXY": "*",
            "OTEL_SDK_DISABLED": "true",
            "OPENAI_API_KEY": "sk-none",
            "OPENAI_BASE_URL": f"{address}/v1",
            "OPENAI_API_BASE": f"{address}/v1",
            "GOOGLE_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": address,
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "CREWAI_DISABLE_TELEMETRY": "true",
            "CREWAI_TRACING_ENABLED": "false",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
    )


def main(name: str, file: str, *only: str) -> None:
    """Drive the cases of one framework."""
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    with model.serve() as address:
        set_variables(address)
        importlib.import_module(f"tests.frameworks.returns.{name}")
        for id, case in shop.CASES.items():
            if not only or id in only:
                found[id] = drive(case)
                # Written after every case, so that a hanging case does not lose the others.
                Path(file).write_text(json.dumps(found, indent=1, default=str), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
    # Framework threads may still be waiting.
    sys.stdout.flush()
    os._exit(0)
