"""A clearinghouse: eligibility as JSON, and raw X12: 270, 276 and 278 in, 271, 277 and 278 out, from the rules of its dataset.

    POST /eligibility         `{"patient_id": "ann"}`, with `service_type` where one is meant: the coverage as JSON
    POST / or /270 /276 /278  an interchange, as the body or as `{"payload": "ISA*..."}`: answered with an interchange
    GET  /transactions        everything that was submitted, with its answer; `/transactions/ID` one of them

EDI that cannot be taken is answered with a TA1 or a 999 that names the reason, never with an error of the server. The state are the
interchanges that were answered, including those written for eligibility as JSON.
"""

from __future__ import annotations

import re

import msgspec

from proctor.codecs.x12 import X12Transaction
from proctor.model.evidence import Json, State, X12State
from proctor.model.show import show
from proctor.simulators.bodies import read_object, read_payload, require_method, split_path, take_text
from proctor.simulators.exchange import Refused, Request, Response, answer_json, refuse
from proctor.simulators.ports import Desk, Tool
from proctor.simulators.rows import Draft
from proctor.simulators.x12.answers import NOT_FOUND, write_271, write_277, write_278
from proctor.simulators.x12.dataset import READ_DATASET, Dataset, Member, read_dataset
from proctor.simulators.x12.envelope import (
    KNOWN,
    Envelope,
    find_fault,
    read_envelope,
    read_interchange,
    write_999,
    write_interchange,
    write_segment,
    write_ta1,
)

MOST_BYTES = 5_000_000
"""Bytes of one interchange."""
X12_TYPE = "application/edi-x12"
_CONFIG = "_config"
_TRANSACTIONS = "transactions"


class X12Simulator:
    """A clearinghouse."""

    kind = "x12"
    summary = "A clearinghouse: eligibility as JSON, and raw 270, 276 and 278 answered with 271, 277, 278 or 999."
    steps = ()
    open_paths = ()
    config_names = ("payer", "members", "claims", "determinations", "default_determination")
    access = {"x12_url": "{url}", "eligibility_url": "{url}/eligibility", "response_url": "{url}/transactions"}  # noqa: RUF012 - never changed

    def seed(self, seed: Json, desk: Desk) -> None:
        """Read `payer`, `members`, `claims`, `determinations` and `default_determination`."""
        desk.rows.put(_CONFIG, "dataset", msgspec.to_builtins(read_dataset(seed, self._load_dataset(desk.rows))))

    def perform(self, step: str, given: Json, desk: Desk) -> None:
        """Perform nothing: a clearinghouse answers, and never begins."""

    def handle(self, request: Request, desk: Desk) -> Response:
        """Answer a request."""
        try:
            parts = split_path(request)
            if parts[:1] == [_TRANSACTIONS] and len(parts) <= 2:
                require_method(request, "GET", "HEAD")
                return self._list(parts[1:], desk.rows)
            if parts == ["eligibility"]:
                require_method(request, "POST")
                return self._check_eligibility(read_object(request), desk)
            if parts and (len(parts) > 1 or parts[0] not in KNOWN):
                raise refuse(404, "not_found", f"there are /eligibility, /{_TRANSACTIONS} and {', '.join(f'/{kind}' for kind in KNOWN)}")
            require_method(request, "POST")
            return self._submit(request, (parts[0],) if parts else tuple(KNOWN), desk)
        except Refused as refused:
            return refused.response

    def _list(self, names: list[str], rows: Draft) -> Response:
        if not names:
            return answer_json(200, {_TRANSACTIONS: list(rows.list(_TRANSACTIONS).values())})
        row = rows.get(_TRANSACTIONS, names[0])
        if row is None:
            raise refuse(404, "not_found", f"there is no transaction {show(names[0])}")
        return answer_json(200, row)

    def _submit(self, request: Request, allowed: tuple[str, ...], desk: Desk) -> Response:
        if len(request.body) > MOST_BYTES:
            raise refuse(413, "too_large", f"an interchange has at most {MOST_BYTES} bytes")
        text, is_json = read_payload(request)
        row = self._answer(text, allowed, desk)
        if is_json:
            return answer_json(200, row)
        return Response(status=200, body=row["response"].encode(), headers={"content-type": X12_TYPE})

    def _answer(self, text: str, allowed: tuple[str, ...], desk: Desk) -> dict[str, Json]:
        """Answer an interchange, and keep both."""
        dataset = self._load_dataset(desk.rows)
        moment = re.sub(r"[^0-9]", "", desk.around.now())[:14]
        number = len(desk.rows.list(_TRANSACTIONS)) + 1
        transactions, rejected = read_interchange(text)
        envelope = read_envelope(transactions[0] if transactions else None, moment)
        row: dict[str, Json] = {"id": str(number), "accepted": not rejected, "at": desk.around.now(), "request": text}
        if rejected:
            reason = "the interchange cannot be read" if rejected == "024" else "the interchange does not end as it began"
            return self._keep({**row, "kind": "TA1", "reason": reason, "response": write_ta1(envelope, number, rejected)}, desk)
        groups: list[tuple[str, str, list[str]]] = []
        reasons: list[str] = []
        for index, transaction in enumerate(transactions, 1):
            fault = find_fault(transaction, allowed)
            if fault is not None:
                reasons.append(fault.text)
            groups.append(
                write_999(transaction, fault)
                if fault is not None
                else _write_answer(transaction, dataset, moment, f"AUTH{number:05}{index:02}")
            )
        row |= {"accepted": not reasons, "kind": groups[0][0], "response": write_interchange(envelope, number, groups)}
        return self._keep({**row, "reason": "; ".join(reasons)} if reasons else row, desk)

    def _keep(self, row: dict[str, Json], desk: Desk) -> dict[str, Json]:
        desk.rows.put(_TRANSACTIONS, row["id"], row)
        return row

    def _check_eligibility(self, given: dict[str, Json], desk: Desk) -> Response:
        """Answer eligibility as JSON; the 271 is written and stored too."""
        dataset = self._load_dataset(desk.rows)
        patient = take_text(given, "patient_id", default="") or take_text(given, "member_id")
        service = take_text(given, "service_type", default="30")
        member = dataset.find_member(patient)
        moment = re.sub(r"[^0-9]", "", desk.around.now())[:14]
        row = self._answer(_write_270(patient, member, service, moment, dataset), ("270",), desk)
        body: dict[str, Json] = {"transaction_id": row["id"], "patient_id": patient, "payer": dataset.payer_name, "edi": row["response"]}
        if member is None:
            error = {"code": NOT_FOUND, "message": "Subscriber/Insured Not Found"}
            return answer_json(200, {**body, "active": False, "benefits": [], "errors": [error]})
        return answer_json(200, {**body, **_describe_coverage(member, service), "errors": []})

    def _load_dataset(self, rows: Draft) -> Dataset:
        config = rows.get(_CONFIG, "dataset")
        return Dataset() if config is None else READ_DATASET.decode(msgspec.json.encode(config))

    def read_state(self, desk: Desk) -> State:
        """Return the interchanges that were answered."""
        return State(x12=X12State(responses=tuple(row["response"] for row in desk.rows.list(_TRANSACTIONS).values())))

    def list_tools(self) -> tuple[Tool, ...]:
        """Return what a model can do with the clearinghouse."""
        patient: dict[str, Json] = {"type": "string", "description": "The id of the patient or the member."}
        service: dict[str, Json] = {"type": "string", "description": "The type of service by its X12 code; 30 is the whole plan."}
        payload: dict[str, Json] = {"type": "string", "description": "An X12 interchange with a 270, 276 or 278."}
        return (
            Tool(
                name="x12_eligibility",
                description="Ask whether a patient is insured, and for what.",
                schema={"type": "object", "properties": {"patient_id": patient, "service_type": service}, "required": ["patient_id"]},
                make_request=lambda given: _ask("/eligibility", given),
            ),
            Tool(
                name="x12_submit",
                description="Submit an X12 interchange; the answer is an interchange, too.",
                schema={"type": "object", "properties": {"payload": payload}, "required": ["payload"]},
                make_request=lambda given: _ask("/", given),
            ),
        )


def _ask(path: str, given: dict[str, Json]) -> Request:
    return Request(method="POST", path=path, headers={"content-type": "application/json"}, body=msgspec.json.encode(given))


def _write_answer(transaction: X12Transaction, dataset: Dataset, moment: str, number: str) -> tuple[str, str, list[str]]:
    guide = KNOWN[transaction.kind]
    if transaction.kind == "270":
        return "271", guide, write_271(transaction, dataset, moment)
    if transaction.kind == "276":
        return "277", guide, write_277(transaction, dataset, moment)
    return "278", guide, write_278(transaction, dataset, moment, number)


def _write_270(patient: str, member: Member | None, service: str, moment: str, dataset: Dataset) -> str:
    """Return the 270 of an eligibility request as JSON."""
    name = ("", "") if member is None else (member.last_name, member.first_name)
    segments = [
        write_segment("BHT", "0022", "13", "1", moment[:8], moment[8:12]),
        "HL*1**20*1",
        write_segment("NM1", "PR", "2", dataset.payer_name, "", "", "", "", "PI", dataset.payer_id),
        "HL*2*1*21*1",
        "NM1*1P*2*PROVIDER*****XX*0000000000",
        "HL*3*2*22*0",
        write_segment("NM1", "IL", "1", *name, "", "", "", "MI", member.member_id if member is not None else patient),
        write_segment("EQ", service),
    ]
    return write_interchange(Envelope(moment=moment), 1, [("270", KNOWN["270"], segments)])


def _describe_coverage(member: Member, service: str) -> dict[str, Json]:
    shown = [benefit for benefit in member.benefits if member.active and service in ("30", benefit.service_type)]
    first = shown[0] if shown else None
    return {
        "active": member.active,
        "member_id": member.member_id,
        "plan": member.plan,
        "copay": first.copay if first is not None else None,
        "deductible": first.deductible if first is not None else None,
        "deductible_remaining": first.deductible_remaining if first is not None else None,
        "benefits": [msgspec.to_builtins(benefit) for benefit in shown],
    }


SIMULATOR = X12Simulator()
