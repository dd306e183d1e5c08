"""The cost of a case: tokens of the agent and the user from the evidence, tokens of the judge from the verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from proctor.checks.run.limits import list_usages
from proctor.model.cost import PriceList, note_stand_ins, price_usage, sum_known
from proctor.model.evidence import Cost, Evidence, Json, Usage, UserEnding
from proctor.model.result import CaseResult


def with_agent_cost(evidence: Evidence, prices: PriceList) -> Evidence:
    """Return the evidence with the agent's cost added, so that claims can refer to it."""
    return msgspec.structs.replace(evidence, cost=find_agent_cost(evidence, prices))


def find_agent_cost(evidence: Evidence, prices: PriceList) -> Cost:
    """Return the cost of the agent's tokens."""
    unknown = evidence.account.unknown.get("usage") if evidence.account is not None else None
    usages = list_usages(evidence)
    if unknown is not None or not usages:
        why = "token usage is not recorded" if unknown is None else f"token usage unknown: {unknown}"
        return Cost(agent=None, currency=prices.currency, why=why)
    agent, why = sum_known(price_usage(usage, evidence.model, prices) for usage in usages)
    notes = dict.fromkeys(note_stand_ins(usage, evidence.model, prices) for usage in usages if usage is not None)
    return Cost(agent=agent, currency=prices.currency, why=why, note="; ".join(filter(None, notes)))


def with_cost(result: CaseResult, evidence: Evidence, prices: PriceList) -> CaseResult:
    """Return the result with the cost of the agent, of the judge and of a model that played the user."""
    cost = evidence.cost or find_agent_cost(evidence, prices)
    decided = [verdict.details for verdict in result.verdicts if verdict.outcome != "skip"]
    judge, why = sum_known(price_request(request, prices) for request in list_requests(decided))
    user, why_user = find_user_cost(evidence.simulated_user, prices)
    total = msgspec.structs.replace(cost, judge=judge, user=user, why=cost.why or why or why_user)
    return msgspec.structs.replace(result, cost=total)


def find_user_cost(user: UserEnding | None, prices: PriceList) -> tuple[float | None, str]:
    """Return the cost of the model that played a user, or None and the reason it is unknown; a script costs nothing."""
    if user is None or not user.model_calls:
        return 0.0, ""
    cost = price_usage(user.usage, user.played_by, prices)
    return (None, f"the simulated user: {cost}") if isinstance(cost, str) else (round(cost, 12), "")


def list_requests(details: Iterable[Mapping[str, Json]]) -> list[dict[str, Json]]:
    """Return the requests to a judge in the details of verdicts or opinions; those sent for several claims are there once."""
    return list({request["id"]: request for each in details for request in each.get("judge_requests", ())}.values())


def price_request(request: Mapping[str, Json], prices: PriceList) -> float | str:
    """Return the cost of a request to a judge, or why it is unknown."""
    cost = price_usage(_read_usage(request.get("usage")), request.get("model"), prices)
    # Otherwise the price in the model's own settings.
    return cost if not isinstance(cost, str) else request.get("cost", f"the judge: {cost}")


def _read_usage(value: Json) -> Usage | None:
    if not isinstance(value, dict):
        return None
    names = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_tokens")
    return Usage(**{name: value[name] for name in names if isinstance(value.get(name), int)})
