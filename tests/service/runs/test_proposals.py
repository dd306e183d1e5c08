"""Proposed cases: generated from stored traces or sent by an agent, and accepted by a person only."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from proctor.formats.suites import read_suite
from proctor.service.access.callers import LOCAL, Caller
from proctor.service.access.projects import NewProject, create_project
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.runs import proposals
from proctor.service.runs.proposals import (
    Acceptance,
    NewProposal,
    Rejection,
    TracesToGroup,
    accept_proposal,
    create_proposal,
    delete_proposal,
    generate_proposals,
    get_proposal,
    list_proposals,
    reject_proposal,
    update_proposal,
)
from proctor.service.traces.cases import delete_case, get_case, list_cases, update_case
from tests.generation.varied_traces import list_traces, vary
from tests.service.trace_world import new_trace, project_key, request, send, span, world

PERSON = Caller(organization_id=LOCAL.organization_id, key_id="key_person")
OTHERS = Caller(organization_id="org_other", key_id="key_other")
DOCUMENT = """\
proctor: 1
cases:
  # why it matters
  - id: refund
    input: Refund order 17
    expect:
      - tool_called: refund
        because: seen
"""


def _write_message(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def make_refund(number: int) -> dict[str, Any]:
    """A trace of an agent that looks up an order and refunds it."""
    trace, root = new_trace(), "aaaaaaaaaaaaaaaa"
    spans = [
        span(
            trace,
            root,
            name="invoke_agent shop",
            gen_ai__operation__name="invoke_agent",
            gen_ai__input__messages=_write_message("user", f"Refund order {number}"),
            gen_ai__output__messages=_write_message("assistant", f"Refunded order {number}."),
        )
    ]
    calls = [("lookup_order", {"id": number}, {"total": number * 7}), ("refund", {"id": number, "amount": number * 7}, {"ok": True})]
    for at, (name, arguments, result) in enumerate(calls):
        called: dict[str, Any] = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": name, "gen_ai__tool__call__id": f"c{at}"}
        called |= {"gen_ai__tool__call__arguments": json.dumps(arguments), "gen_ai__tool__call__result": json.dumps(result)}
        spans.append(span(trace, f"bbbbbbbbbbbbbbb{at}", root, name=f"execute_tool {name}", **called))
    return request(*spans)


def _spec(project: str, **more: Any) -> NewProposal:
    return NewProposal(**{"project_id": project, "document": DOCUMENT, "because": "a customer wanted it", **more})


async def _refuse(call: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await call
    return caught.value


async def test_stored_traces_are_proposed_accepted_and_then_known(hub: Hub) -> None:
    project, agent = await world(hub, suite=None)
    for number in range(100, 106):
        await send(hub, make_refund(number))
    made = await generate_proposals(hub, LOCAL, TracesToGroup(project_id=project))
    (summary,) = made["proposals"]
    assert (made["traces"], made["known"], summary["name"], summary["agent_id"]) == (6, 0, "lookup-order-refund", agent)
    proposal = await get_proposal(hub, LOCAL, summary["id"])
    assert "result_of: lookup_order, path: total" in proposal["document"] and "because: " in proposal["document"]
    # Only traces of this input are evaluated with it.
    assert proposal["when"] == {"input": "^Refund order 105$"}
    assert (await list_cases(hub, LOCAL, project_id=project))["data"] == []
    accepted = await accept_proposal(hub, LOCAL, proposal["id"], Acceptance(expected_version=1))
    case = await get_case(hub, LOCAL, accepted["case_id"] or "")
    assert (case["document"], case["when"], case["agent_id"]) == (proposal["document"], proposal["when"], agent)
    assert await accept_proposal(hub, LOCAL, proposal["id"], Acceptance()) == accepted, "accepting twice changes nothing"
    assert len((await list_cases(hub, LOCAL, project_id=project))["data"]) == 1
    again = await generate_proposals(hub, LOCAL, TracesToGroup(project_id=project, agent_id=agent))
    assert (again["proposals"], again["known"]) == ([], 1)


async def test_more_traces_propose_a_change_that_keeps_what_a_person_wrote(hub: Hub) -> None:
    project, _ = await world(hub, suite=None)
    for number in range(100, 104):
        await send(hub, make_refund(number))
    (made,) = (await generate_proposals(hub, LOCAL, TracesToGroup(project_id=project)))["proposals"]
    case_id = (await accept_proposal(hub, LOCAL, made["id"], Acceptance()))["case_id"] or ""
    document = (await get_case(hub, LOCAL, case_id))["document"]
    await update_case(
        hub, LOCAL, case_id, {"document": document.replace("    expect:\n", "    expect:\n      - no_tools_called  # mine\n")}
    )
    for number in range(104, 130):
        await send(hub, make_refund(number))
    (change,) = (await generate_proposals(hub, LOCAL, TracesToGroup(project_id=project)))["proposals"]
    assert (change["case_id"], change["case_version"]) == (case_id, 2)
    text = (await get_proposal(hub, LOCAL, change["id"]))["document"]
    assert "- no_tools_called  # mine\n" in text and "30 traces" in text
    await accept_proposal(hub, LOCAL, change["id"], Acceptance())
    assert (await get_case(hub, LOCAL, case_id))["version"] == 3


async def test_an_agent_proposes_and_only_another_key_of_a_person_accepts(hub: Hub) -> None:
    project, agent = await world(hub, suite=None)
    coding_agent = project_key(project)
    sent = await create_proposal(hub, coding_agent, _spec(project))
    assert (sent["status"], sent["source"], sent["proposed_by"], sent["name"]) == ("pending", "key", "key_1", "refund")
    for attempt in (
        accept_proposal(hub, coding_agent, sent["id"], Acceptance()),
        reject_proposal(hub, coding_agent, sent["id"], Rejection()),
        update_proposal(hub, coding_agent, sent["id"], {"document": DOCUMENT}),
        delete_proposal(hub, coding_agent, sent["id"]),
        generate_proposals(hub, coding_agent, TracesToGroup(project_id=project)),
    ):
        assert (await _refuse(attempt)).code == "FORBIDDEN"
    mine = await create_proposal(hub, PERSON, _spec(project, document=DOCUMENT.replace("17", "18"), agent_id=agent))
    assert "its own proposal" in (await _refuse(accept_proposal(hub, PERSON, mine["id"], Acceptance()))).message
    assert (await accept_proposal(hub, PERSON, sent["id"], Acceptance()))["status"] == "accepted"
    assert [case["name"] for case in (await list_cases(hub, LOCAL, project_id=project))["data"]] == ["refund"]


async def test_a_key_proposes_only_in_its_place(hub: Hub) -> None:
    project, agent = await world(hub, suite=None)
    other = (await create_project(hub, LOCAL, NewProject(name="other")))["id"]
    sent = await create_proposal(hub, project_key(project), _spec(project))
    assert (await _refuse(create_proposal(hub, project_key(project), _spec(other)))).code == "NOT_FOUND"
    assert (await _refuse(create_proposal(hub, OTHERS, _spec(project)))).code == "NOT_FOUND"
    assert (await _refuse(get_proposal(hub, project_key(other), sent["id"]))).code == "NOT_FOUND"
    assert (await list_proposals(hub, project_key(other)))["data"] == []
    limited = project_key(project, agent)
    assert (await _refuse(create_proposal(hub, limited, _spec(project)))).code == "FORBIDDEN"
    assert (await _refuse(create_proposal(hub, limited, _spec(project, agent_id="agent_none")))).code == "FORBIDDEN"
    foreign = (await accept_proposal(hub, PERSON, sent["id"], Acceptance()))["case_id"]
    assert (await _refuse(create_proposal(hub, LOCAL, _spec(other, case_id=foreign)))).code == "NOT_FOUND"
    assert (await _refuse(create_proposal(hub, Caller(organization_id="org_default", kind="solver"), _spec(project)))).code == "FORBIDDEN"


async def test_the_same_content_is_not_proposed_again_in_another_layout(hub: Hub) -> None:
    project, _ = await world(hub, suite=None)
    agent = project_key(project)
    sent = await create_proposal(hub, agent, _spec(project))
    disguised = _spec(project, document=DOCUMENT.replace("# why it matters", "# please").replace("seen", "really"), because="again")
    assert f"is pending ({sent['id']})" in (await _refuse(create_proposal(hub, agent, disguised))).message
    await reject_proposal(hub, PERSON, sent["id"], Rejection(reason="covered elsewhere"))
    assert (await _refuse(create_proposal(hub, agent, disguised))).message.endswith("covered elsewhere")
    assert (await _refuse(accept_proposal(hub, PERSON, sent["id"], Acceptance()))).code == "CONFLICT"
    await delete_proposal(hub, PERSON, sent["id"])
    again = await create_proposal(hub, agent, disguised)
    case = (await accept_proposal(hub, PERSON, again["id"], Acceptance()))["case_id"] or ""
    assert "was accepted" in (await _refuse(create_proposal(hub, agent, disguised))).message
    await delete_case(hub, PERSON, case)
    assert (await create_proposal(hub, agent, disguised))["status"] == "pending"


async def test_the_reviewed_document_is_the_accepted_one(hub: Hub) -> None:
    project, _ = await world(hub, suite=None)
    sent = await create_proposal(hub, project_key(project), _spec(project))
    edited = await update_proposal(hub, PERSON, sent["id"], {"document": DOCUMENT.replace("17", "19"), "expected_version": 1})
    assert edited["version"] == 2
    assert (await _refuse(accept_proposal(hub, PERSON, sent["id"], Acceptance(expected_version=1)))).code == "CONFLICT"
    assert (await _refuse(update_proposal(hub, PERSON, sent["id"], {"name": "x", "expected_version": 1}))).code == "CONFLICT"
    case_id = (await accept_proposal(hub, PERSON, sent["id"], Acceptance(expected_version=2)))["case_id"] or ""
    assert "order 19" in (await get_case(hub, LOCAL, case_id))["document"]
    assert (await _refuse(update_proposal(hub, PERSON, sent["id"], {"name": "x"}))).code == "CONFLICT"


async def test_accepting_a_change_of_a_case_changed_since_is_refused_and_stays_pending(hub: Hub) -> None:
    project, _ = await world(hub, suite=None)
    sent = await create_proposal(hub, project_key(project), _spec(project))
    case_id = (await accept_proposal(hub, PERSON, sent["id"], Acceptance()))["case_id"] or ""
    change = await create_proposal(hub, project_key(project), _spec(project, case_id=case_id, document=DOCUMENT.replace("17", "21")))
    await update_case(hub, LOCAL, case_id, {"document": DOCUMENT.replace("17", "22")})
    assert (await _refuse(accept_proposal(hub, PERSON, change["id"], Acceptance()))).code == "CONFLICT"
    assert (await get_proposal(hub, LOCAL, change["id"]))["status"] == "pending"
    assert "order 22" in (await get_case(hub, LOCAL, case_id))["document"]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"document": "proctor: 1\ncases: ["}, "document"),
        ({"document": "proctor: 1\ncases: []"}, "document"),
        ({"document": "proctor: 1\ncases:\n  - {id: a, input: !!python/object/apply:os.system [id]}"}, "document"),
        ({"document": "a: &a [x, x]\nb: &b [*a, *a]\nproctor: 1\ncases: [{id: a, input: *b}]"}, "document"),
        ({"document": DOCUMENT + "# " + "x" * proposals.LONGEST_PROPOSAL}, "document"),
        (
            {"document": DOCUMENT.replace("cases", "targets: {a: {type: http, url: x, api_key: sk-abcdefghijklmnopqrstuv}}\ncases")},
            "document",
        ),
        ({"because": " "}, "because"),
        ({"because": "x" * 2_001}, "because"),
        ({"when": {"input": "("}}, "when.input"),
        ({"name": ""}, "name"),
    ],
)
async def test_an_invalid_case_is_refused_with_its_field(hub: Hub, more: dict[str, Any], field: str) -> None:
    project, _ = await world(hub, suite=None)
    refused = await _refuse(create_proposal(hub, project_key(project), _spec(project, **more)))
    assert refused.code == "VALIDATION_ERROR" and any(name.startswith(field) for name in refused.fields), refused.fields


async def test_a_key_cannot_flood_the_queue(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "MOST_OF_KEY", 3)
    project, _ = await world(hub, suite=None)
    flooding = project_key(project)
    for number in range(3):
        await create_proposal(hub, flooding, _spec(project, document=DOCUMENT.replace("17", str(number))))
    assert "wait until" in ((await _refuse(create_proposal(hub, flooding, _spec(project)))).hint or "")
    other = msgspec.structs.replace(flooding, key_id="key_2")
    sent = await create_proposal(hub, other, _spec(project))
    await reject_proposal(hub, PERSON, sent["id"], Rejection())
    assert len((await list_proposals(hub, LOCAL, project_id=project, status="pending"))["data"]) == 3


async def test_a_conversation_is_evaluated_only_on_traces_with_its_first_message(hub: Hub) -> None:
    trace, document = next((id, each) for id, (scenario, each) in list_traces("pydantic-ai-v2").items() if scenario == "multi")
    attributes = document["resourceSpans"][0]["resource"]["attributes"]
    name = next(each["value"]["stringValue"] for each in attributes if each["key"] == "service.name")
    project, _ = await world(hub, suite=None, service_name=name)
    for number in range(4):
        await send(hub, vary(document, trace, f"proposed {number}"))
    (made,) = (await generate_proposals(hub, LOCAL, TracesToGroup(project_id=project)))["proposals"]
    proposal = await get_proposal(hub, LOCAL, made["id"])
    (case,) = read_suite(proposal["document"], name="proposed").cases
    assert len(case.turns) == 2 and proposal["when"] == {"input": f"^{str(case.turns[0].input).replace('?', chr(92) + '?')}$"}
