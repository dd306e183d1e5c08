"""Send one message to an agent and return what was observed; nothing is decided and nothing is stored."""

from __future__ import annotations

import asyncio
import os
import secrets

import msgspec

from proctor.actions.judging.trust import trust_for
from proctor.actions.running.named_target import DrivenTarget, choose_target
from proctor.actions.running.run_builder import build_run
from proctor.actions.running.run_policy import Policy
from proctor.actions.workspace.run_history import find_home
from proctor.cassettes.ports import LIVE
from proctor.errors import TargetError
from proctor.evidence.mapping.propose import propose_map, write_map
from proctor.evidence.unknowns.account import find_known
from proctor.model.attempt import Attempt
from proctor.model.case import Case, Suite
from proctor.model.evidence import Evidence
from proctor.model.show import exception_text

CASE = "try"
_LONGEST_REASON = 4_000


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one message."""

    target: str
    """The name of the target that was driven."""
    kind: str
    """Its type: `callable`, `http`, `command`, ..."""
    message: str
    evidence: Evidence | None = None
    """What was observed; for an agent that failed, what was observed before."""
    error: str | None = None
    code: str | None = None

    def propose_mapping(self) -> str:
        """Return `evidence: ...` for an HTTP agent whose answer or calls are not recognised, or an empty text."""
        body = self.evidence.body if self.evidence is not None else None
        if self.kind != "http" or self.evidence is None or not isinstance(body, dict):
            return ""
        known = find_known(self.evidence)
        if known.reader == "mapping" or not any(known.parts[part].is_unknown for part in ("answer", "tool_calls")):
            return ""
        proposed = propose_map([body])
        return "" if proposed is None else write_map(proposed, [body], indent="  ")

    def is_unanswered(self) -> bool:
        """Return whether the evidence has no answer or an incomplete one: the run waits, or was cut off."""
        account = self.evidence.account if self.evidence is not None else None
        return account is not None and "answer" in account.unknown


async def try_message(
    message: str, *, target: str | None = None, home: str | None = None, timeout_s: float = 120.0, capture: str | None = None
) -> Tried:
    """Drive a target with one message; errors of the agent are in the result. Raises `InputError` for an invalid target."""
    place = find_home(home)
    suite = Suite(name=CASE, cases=(Case(id=CASE, input=message),))
    policy = Policy(place, trust_for("running", home=place), dict(os.environ))
    chosen = choose_target(target, suite, place, capture=capture)
    built = build_run(suite, chosen, policy)
    driven = built.target
    while isinstance(driven, DrivenTarget):
        driven = driven.driven
    module = type(driven).__module__
    kind = "mcp_agent" if module == "proctor.targets.mcp.agent" else module.rpartition(".")[2]
    tried = Tried(target=built.target.name, kind=kind, message=message)
    id = f"{CASE}-{secrets.token_hex(8)}"
    attempt = Attempt(case=suite.cases[0], request_id=id, session_id=id, timeout_s=timeout_s)
    try:
        await built.target.open()
        try:
            async with asyncio.timeout(timeout_s):
                evidence = await built.target.run(attempt, LIVE)
        finally:
            await built.target.close()
    except TargetError as fault:
        reason = exception_text(fault, _LONGEST_REASON)
        return msgspec.structs.replace(tried, evidence=fault.evidence, error=reason, code=fault.code)
    except TimeoutError:
        return msgspec.structs.replace(tried, error=f"no answer within {timeout_s:g} s", code="timeout")
    finally:
        await built.close()
    # The case is temporary: evidence that names it would match no case of a suite.
    return msgspec.structs.replace(tried, evidence=msgspec.structs.replace(evidence, case=None))
