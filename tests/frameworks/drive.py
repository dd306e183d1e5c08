"""Runs one combination inside its own environment: `python -m tests.frameworks.drive` with COMBINATION set by the recorder.

Two pipes of lines notify the recorder when a scenario begins and ends, so that it can assign exports to scenarios.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from tests.frameworks import instruments
from tests.frameworks.shop import SCENARIOS


def notify(word: str, **fields: Any) -> None:
    """Notify the recorder and wait until it has confirmed."""
    print("\x1e" + json.dumps({"word": word, **fields}), flush=True)
    sys.stdin.readline()


def converse(make: Callable[[], Any], scenario: Any, wrap: str, outer: Callable[[str], Any], messages: dict[str, Any]) -> None:
    """Hold one conversation, inside a span of the user if the combination has one."""
    several = len(scenario.turns) > 1
    name = {"always": "support_request", "multi": "conversation" if several else "", "never": ""}[wrap]
    with outer(name) if name else contextlib.nullcontext():
        agent = make()
        for turn in scenario.turns:
            text = agent.ask(turn.input, scenario.streamed)
            wanted = turn.steps[-1].text
            if str(text).strip() != wanted:
                raise SystemExit(f"{scenario.name}: the agent answered {text!r}, not {wanted!r}")
        if hasattr(agent, "messages"):
            for kind, document in agent.messages().items():
                messages.setdefault(kind, {})[scenario.name] = document
        if hasattr(agent, "close"):
            agent.close()


def main() -> int:
    combination = json.loads(os.environ["COMBINATION"])
    settings = combination.get("settings") or {}
    only = [name for name in (os.environ.get("SCENARIOS") or "").split(",") if name]
    telemetry = instruments.start(combination["instrument"], settings)
    module = importlib.import_module(f"tests.frameworks.agents.{combination['agent']}")
    make = module.prepare(settings)
    messages: dict[str, Any] = {}
    telemetry.flush()
    failed = 0
    for scenario in SCENARIOS:
        if (only and scenario.name not in only) or scenario.name in (settings.get("without") or []):
            continue
        os.environ["SHOP_SCENARIO"] = scenario.name
        notify("begin", scenario=scenario.name)
        try:
            converse(make, scenario, settings.get("wrap", "multi"), telemetry.outer, messages)
        except (Exception, SystemExit):
            failed += 1
            traceback.print_exc()
        telemetry.flush()
        notify("end", scenario=scenario.name)
    notify("messages", documents=json.loads(json.dumps(messages, default=str)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.stdout.flush()
    code = main()
    # Some frameworks leave threads running.
    sys.stderr.flush()
    os._exit(code)
