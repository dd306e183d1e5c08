"""A clearinghouse: eligibility as JSON, and raw X12: 270, 276 and 278 in, 271, 277 and 278 out, from the rules of its dataset.

    POST /eligibility         `{"patient_id": "ann"}`, with `service_type` where one is meant: the coverage as JSON
    POST / or /270 /276 /278  an interchange, as the body or as `{"payload": "ISA*..."}`: answered with an interchange
    GET  /transactions        everything that was submitted, with its answer; `/transactions/ID` one of them

Invalid EDI is answered with a TA1 or a 999 that has the reason, never with a server error. The state consists of the answered
interchanges, including those written for eligibility as JSON.

The parties and trace numbers of the request are returned unchanged. A person who is not insured is an AAA in 271 and 278, an unknown claim
the status A4:35 in 277.
"""

from __future__ import annotations

import re

import msgspec

from proctor.codecs.segments import Segment, X12Transaction, compile_segment_path
from proctor.model.evidence import Json, State, X12State
from proctor.model.show import show
from proctor.simulators import exchange
from proctor.simulators.ports import Desk, Simulator, Tool
from proctor.simulators.rows import Draft
from proctor.simulators.tools import make_tool
from proctor.simulators.x12 import (
    CLAIM_STATUS,
    DECISIONS,
    KNOWN,
    Claim,
    Dataset,
    Determination,
    Envelope,
    Member,
    find_fault,
    join_elements,
    read_dataset,
    read_envelope,
    read_interchange,
    value_at,
    write_999,
    write_composite,
    write_interchange,
    write_segment,
    write_ta1,
)

MOST_BYTES = 5_000_000
"""Bytes of one interchange."""
X12_TYPE = "application/edi-x12"
_CONFIG = "_config"
_TRANSACTIONS = "transactions"


class X12Simulator(Simulator):
    """A clearinghouse."""

    kind = "x12"
    summary = "A clearinghouse: eligibility as JSON, and raw 270, 276 and 278 answered with 271, 277, 278 or 999."
    config_names = ("payer", "members", "claims", "determinations", "default_determination")
    access = {"x12_url": "{url}", "eligibility_url": "{url}/eligibility", "response_url": "{url}/transactions"}  # noqa: RUF012 - never changed

    def seed(self, seed: Json, desk: Desk) -> None:
        """Read `payer`, `members`, `claims`, `determinations` and `default_determination`."""
        desk.rows.put(_CONFIG, "dataset", msgspec.to_builtins(read_dataset(seed, _load_dataset(desk.rows))))

    def answer(self, request: exchange.Request, desk: Desk) -> exchange.Response:
        """Answer a request. Raises `Refused`."""
        parts = exchange.split_path(request)
        if parts[:1] == [_TRANSACTIONS] and len(parts) <= 2:
            exchange.require_method(request, "GET", "HEAD")
            names = parts[1:]
            if not names:
                return exchange.answer_json(200, {_TRANSACTIONS: list(desk.rows.list(_TRANSACTIONS).values())})
            if (row := desk.rows.get(_TRANSACTIONS, names[0])) is None:
                raise exchange.refuse(404, "not_found", f"there is no transaction {show(names[0])}")
            return exchange.answer_json(200, row)
        if parts == ["eligibility"]:
            exchange.require_method(request, "POST")
            return self._check_eligibility(exchange.read_object(request), desk)
        if parts and (len(parts) > 1 or parts[0] not in KNOWN):
            raise exchange.refuse(
                404, "not_found", f"there are /eligibility, /{_TRANSACTIONS} and {', '.join(f'/{kind}' for kind in KNOWN)}"
            )
        exchange.require_method(request, "POST")
        allowed = (parts[0],) if parts else tuple(KNOWN)
        if len(request.body) > MOST_BYTES:
            raise exchange.refuse(413, "too_large", f"an interchange has at most {MOST_BYTES} bytes")
        text, is_json = exchange.read_payload(request)
        row = self._answer(text, allowed, desk)
        if is_json:
            return exchange.answer_json(200, row)
        return exchange.Response(status=200, body=row["response"].encode(), headers={"content-type": X12_TYPE})

    def _answer(self, text: str, allowed: tuple[str, ...], desk: Desk) -> dict[str, Json]:
        """Answer an interchange, and store both."""
        dataset = _load_dataset(desk.rows)
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

    def _check_eligibility(self, members: dict[str, Json], desk: Desk) -> exchange.Response:
        """Answer eligibility as JSON; the 271 is written and stored too."""
        dataset = _load_dataset(desk.rows)
        patient = exchange.take_text(members, "patient_id", default="") or exchange.take_text(members, "member_id")
        service = exchange.take_text(members, "service_type", default="30")
        member = dataset.find_member(patient)
        moment = re.sub(r"[^0-9]", "", desk.around.now())[:14]
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
        row = self._answer(write_interchange(Envelope(moment=moment), 1, [("270", KNOWN["270"], segments)]), ("270",), desk)
        body: dict[str, Json] = {"transaction_id": row["id"], "patient_id": patient, "payer": dataset.payer_name, "edi": row["response"]}
        if member is None:
            error = {"code": NOT_FOUND, "message": "Subscriber/Insured Not Found"}
            return exchange.answer_json(200, {**body, "active": False, "benefits": [], "errors": [error]})
        return exchange.answer_json(200, {**body, **_describe_coverage(member, service), "errors": []})

    def read_state(self, desk: Desk) -> State:
        """Return the answered interchanges."""
        return State(x12=X12State(responses=tuple(row["response"] for row in desk.rows.list(_TRANSACTIONS).values())))

    def list_tools(self) -> tuple[Tool, ...]:
        """Return the tools for the clearinghouse."""
        patient: dict[str, Json] = {"type": "string", "description": "The id of the patient or the member."}
        service: dict[str, Json] = {"type": "string", "description": "The type of service by its X12 code; 30 is the whole plan."}
        payload: dict[str, Json] = {"type": "string", "description": "An X12 interchange with a 270, 276 or 278."}
        return (
            make_tool(
                "x12_eligibility",
                "Ask whether a patient is insured, and for what.",
                {"patient_id": patient, "service_type": service},
                ("patient_id",),
                request="POST /eligibility",
            ),
            make_tool(
                "x12_submit",
                "Submit an X12 interchange; the answer is an interchange, too.",
                {"payload": payload},
                ("payload",),
                request="POST /",
            ),
        )


def _write_answer(transaction: X12Transaction, dataset: Dataset, moment: str, number: str) -> tuple[str, str, list[str]]:
    guide = KNOWN[transaction.kind]
    if transaction.kind == "270":
        return "271", guide, write_271(transaction, dataset, moment)
    if transaction.kind == "276":
        return "277", guide, write_277(transaction, dataset, moment)
    return "278", guide, write_278(transaction, dataset, moment, number)


def _describe_coverage(member: Member, service: str) -> dict[str, Json]:
    benefits = [benefit for benefit in member.benefits if member.active and service in ("30", benefit.service_type)]
    first = benefits[0] if benefits else None
    return {
        "active": member.active,
        "member_id": member.member_id,
        "plan": member.plan,
        "copay": first.copay if first is not None else None,
        "deductible": first.deductible if first is not None else None,
        "deductible_remaining": first.deductible_remaining if first is not None else None,
        "benefits": [msgspec.to_builtins(benefit) for benefit in benefits],
    }


def _load_dataset(rows: Draft) -> Dataset:
    return rows.load(_CONFIG, "dataset", Dataset) or Dataset()


SIMULATOR = X12Simulator()


NOT_FOUND = "75"
"""Reject reason: the subscriber is not found."""
_PATHS = {
    name: compile_segment_path(name)
    for name in ("BHT.3", "NM1[IL].3", "NM1[IL].4", "NM1[IL].9", "NM1[QC].9", "DMG.2", "REF['1K'].2", "REF[EJ].2", "TRN.2", "TRN.3")
}


def find_subscriber(transaction: X12Transaction, dataset: Dataset) -> Member | None:
    """Return the member of a request: by the id, else by name and birth date."""
    number = value_at(transaction, _PATHS["NM1[IL].9"])
    if number:
        return dataset.find_member(number)
    return dataset.find_person(*(value_at(transaction, _PATHS[name]) for name in ("NM1[IL].3", "NM1[IL].4", "DMG.2")))


def write_271(transaction: X12Transaction, dataset: Dataset, moment: str) -> list[str]:
    """Return the segments of the answer to a 270."""
    member = find_subscriber(transaction, dataset)
    segments = [
        write_segment("BHT", "0022", "11", value_at(transaction, _PATHS["BHT.3"]) or "1", moment[:8], moment[8:12]),
        "HL*1**20*1",
        _write_payer("PR", dataset),
        "HL*2*1*21*1",
        _repeat_name(transaction, "1P"),
        "HL*3*2*22*0",
        *_repeat_traces(transaction),
        _write_subscriber(transaction, member),
    ]
    if member is None:
        return [*segments, f"AAA*N**{NOT_FOUND}*C"]
    if member.birth_date:
        segments.append(write_segment("DMG", "D8", member.birth_date, member.gender))
    divider = transaction.delimiters.repetition
    written: list[str] = []
    for segment in transaction.segments:
        if segment.name == "EQ":
            written += [part for part in (segment.find_field(1).split(divider) if divider else [segment.find_field(1)]) if part]
    return [*segments, *write_benefits(member, tuple(dict.fromkeys(written)) or ("30",))]


def write_benefits(member: Member, service_types: tuple[str, ...]) -> list[str]:
    """Return the EB segments: whether the coverage is active, and the requested services."""
    segments = [write_segment("EB", "1" if member.active else "6", "IND", "30", "", member.plan)]
    if not member.active:
        return segments
    for benefit in member.benefits:
        # A request for the whole plan gets everything.
        if "30" not in service_types and benefit.service_type not in service_types:
            continue
        kind = benefit.service_type
        amounts = (
            ("B", "27", benefit.copay),
            ("C", "23", benefit.deductible),
            ("C", "29", benefit.deductible_remaining),
        )
        segments += [
            write_segment("EB", code, "IND", kind, "", "", period, write_amount(amount))
            for code, period, amount in amounts
            if amount is not None
        ]
        if benefit.coinsurance is not None:
            segments.append(write_segment("EB", "A", "IND", kind, "", "", "27", "", write_amount(benefit.coinsurance)))
    return segments


def write_277(transaction: X12Transaction, dataset: Dataset, moment: str) -> list[str]:
    """Return the segments of the answer to a 276: one status for each requested claim."""
    member = find_subscriber(transaction, dataset)
    segments = [
        write_segment("BHT", "0010", "08", value_at(transaction, _PATHS["BHT.3"]) or "1", moment[:8], moment[8:12], "DG"),
        "HL*1**20*1",
        _write_payer("PR", dataset),
        "HL*2*1*21*1",
        _repeat_name(transaction, "41"),
        "HL*3*2*19*1",
        _repeat_name(transaction, "1P"),
        "HL*4*3*22*0",
        _write_subscriber(transaction, member),
    ]
    written: list[tuple[str, str]] = []
    for segment in transaction.segments:
        if segment.name == "TRN":
            written.append((segment.find_field(2), ""))
        elif segment.name == "REF" and segment.find_field(1) in ("1K", "EJ") and written and not written[-1][1]:
            written[-1] = (written[-1][0], segment.find_field(2))
    for trace, number in written:
        claim = _find_claim(dataset, member, number)
        category, status = ("A4", "35") if claim is None else CLAIM_STATUS[claim.status]
        amounts = ("", "") if claim is None else (write_amount(claim.charged), write_amount(claim.paid))
        segments.append(write_segment("TRN", "2", trace))
        segments.append(join_elements("STC", write_composite(category, status), moment[:8], "", *amounts))
        if claim is not None:
            segments.append(write_segment("REF", "1K", claim.claim_number))
        if claim is not None and claim.date:
            segments.append(write_segment("DTP", "472", "D8", claim.date))
    return segments


def _find_claim(dataset: Dataset, member: Member | None, number: str) -> Claim | None:
    if member is None:
        return None
    claims = [claim for claim in dataset.claims if claim.member_id == member.member_id]
    if number:
        return next((claim for claim in claims if claim.claim_number == number), None)
    # Without a number, the only claim is meant; if there are several, it is unknown which.
    return claims[0] if len(claims) == 1 else None


def write_278(transaction: X12Transaction, dataset: Dataset, moment: str, number: str) -> list[str]:
    """Return the segments of the answer to a 278: every service is decided separately, in the order of the request."""
    member = find_subscriber(transaction, dataset)
    segments = [
        write_segment("BHT", "0007", "11", value_at(transaction, _PATHS["BHT.3"]) or "1", moment[:8], moment[8:12], "18"),
        "HL*1**20*1",
        _write_payer("X3", dataset),
        "HL*2*1*21*1",
        _repeat_name(transaction, "1P"),
        "HL*3*2*22*1",
        _write_subscriber(transaction, member),
    ]
    if member is None:
        return [*segments, f"AAA*N**{NOT_FOUND}*C"]
    level, decided = 3, 0
    written: list[tuple[Segment, list[Segment]]] = []
    for segment in transaction.segments:
        if segment.name == "UM":
            written.append((segment, []))
        elif segment.name in ("SV1", "SV2", "SV3") and written:
            written[-1][1].append(segment)
    # A service may have its own UM, which repeats that of its event.
    events = [written_segment for written_segment in written if written_segment[1]] or written[:1]
    for um, services in events:
        level += 1
        event = level
        segments += [f"HL*{event}*3*EV*{1 if services else 0}", *_repeat_traces(transaction), _repeat(um, transaction)]
        for service in services or [None]:
            decided += 1
            if service is not None:
                level += 1
                segments += [f"HL*{level}*{event}*SS*0", _repeat(service, transaction)]
            decision = dataset.decide(_read_procedure(service, transaction), member.member_id)
            segments += _write_decision(decision, number if len(events) == 1 and len(services) < 2 else f"{number}{decided:02}")
    return segments


def _write_decision(made: Determination, number: str) -> list[str]:
    """Return the decision; certified and pending requests get a number, denied ones do not."""
    decision = DECISIONS[made.status]
    hcr = write_segment("HCR", decision, number if decision != "A3" else "")
    return [hcr, write_segment("MSG", made.reason)] if made.reason else [hcr]


def _read_procedure(service: Segment | None, transaction: X12Transaction) -> str:
    if service is None:
        return ""
    parts = service.find_field(2 if service.name == "SV2" else 1).split(transaction.delimiters.component or ":")
    return parts[1] if len(parts) > 1 else parts[0]


def write_amount(value: float) -> str:
    """Return an amount in X12 format: without unnecessary zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


def _write_payer(role: str, dataset: Dataset) -> str:
    return write_segment("NM1", role, "2", dataset.payer_name, "", "", "", "", "PI", dataset.payer_id)


def _write_subscriber(transaction: X12Transaction, member: Member | None) -> str:
    if member is not None:
        return write_segment("NM1", "IL", "1", member.last_name, member.first_name, "", "", "", "MI", member.member_id)
    elements = {name: value_at(transaction, _PATHS[f"NM1[IL].{name}"]) for name in ("3", "4", "9")}
    return write_segment("NM1", "IL", "1", elements["3"], elements["4"], "", "", "", *(("MI", elements["9"]) if elements["9"] else ()))


def _repeat_name(transaction: X12Transaction, role: str) -> str:
    """Return the party of a role as it was sent, or one without a name."""
    for segment in transaction.segments:
        if segment.name == "NM1" and segment.find_field(1) == role:
            return _repeat(segment, transaction)
    return write_segment("NM1", role, "2", "PROVIDER", "", "", "", "", "46" if role == "41" else "XX", "0000000000")


def _repeat_traces(transaction: X12Transaction) -> list[str]:
    traces = [segment for segment in transaction.segments if segment.name == "TRN"]
    return [write_segment("TRN", "2", *trace.fields[1:4]) for trace in traces]


def _repeat(segment: Segment, transaction: X12Transaction) -> str:
    """Return a segment as sent, with our delimiters."""
    divider = transaction.delimiters.component
    fields = [write_composite(*(field.split(divider) if divider else [field])) for field in segment.fields]
    return join_elements(segment.name, *fields)
