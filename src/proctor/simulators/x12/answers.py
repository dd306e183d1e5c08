"""What a clearinghouse answers from its dataset: 271 (eligibility), 277 (status of a claim) and 278 (authorization).

The parties and trace numbers of the request are returned unchanged. A person who is not insured is an AAA in 271 and 278, an unknown claim
the status A4:35 in 277.
"""

from __future__ import annotations

from proctor.codecs.segments import Segment, compile_segment_path
from proctor.codecs.x12 import X12Transaction
from proctor.simulators.x12.dataset import CLAIM_STATUS, DECISIONS, Claim, Dataset, Determination, Member
from proctor.simulators.x12.envelope import join_elements, value_at, write_composite, write_segment

NOT_FOUND = "75"
"""Reject reason: the subscriber is not found."""
_PATHS = {
    name: compile_segment_path(name)
    for name in ("BHT.3", "NM1[IL].3", "NM1[IL].4", "NM1[IL].9", "NM1[QC].9", "DMG.2", "REF['1K'].2", "REF[EJ].2", "TRN.2", "TRN.3")
}


def find_subscriber(transaction: X12Transaction, dataset: Dataset) -> Member | None:
    """Return the member that a request is about: by the id, else by name and birth date."""
    number = value_at(transaction, _PATHS["NM1[IL].9"])
    if number:
        return dataset.find_member(number)
    return dataset.find_person(*(value_at(transaction, _PATHS[name]) for name in ("NM1[IL].3", "NM1[IL].4", "DMG.2")))


def list_service_types(transaction: X12Transaction) -> tuple[str, ...]:
    """Return the requested types of service; 30 is all of the plan."""
    divider = transaction.delimiters.repetition
    found: list[str] = []
    for segment in transaction.segments:
        if segment.name == "EQ":
            found += [part for part in (segment.find_field(1).split(divider) if divider else [segment.find_field(1)]) if part]
    return tuple(dict.fromkeys(found)) or ("30",)


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
    return [*segments, *write_benefits(member, list_service_types(transaction))]


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
    for trace, number in _list_claims(transaction):
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


def _list_claims(transaction: X12Transaction) -> list[tuple[str, str]]:
    """Return the requested claims: the trace, and the number of the payer or of the provider after it."""
    found: list[tuple[str, str]] = []
    for segment in transaction.segments:
        if segment.name == "TRN":
            found.append((segment.find_field(2), ""))
        elif segment.name == "REF" and segment.find_field(1) in ("1K", "EJ") and found and not found[-1][1]:
            found[-1] = (found[-1][0], segment.find_field(2))
    return found


def _find_claim(dataset: Dataset, member: Member | None, number: str) -> Claim | None:
    if member is None:
        return None
    own = [claim for claim in dataset.claims if claim.member_id == member.member_id]
    if number:
        return next((claim for claim in own if claim.claim_number == number), None)
    # Without a number the only claim is meant; of several it is unknown which.
    return own[0] if len(own) == 1 else None


def write_278(transaction: X12Transaction, dataset: Dataset, moment: str, number: str) -> list[str]:
    """Return the segments of the answer to a 278: every service is decided by itself, in the order of the request."""
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
    events = _list_events(transaction)
    for um, services in events:
        level += 1
        event = level
        segments += [f"HL*{event}*3*EV*{1 if services else 0}", *_repeat_traces(transaction), _repeat(um, transaction)]
        for service in services or [None]:
            decided += 1
            if service is not None:
                level += 1
                segments += [f"HL*{level}*{event}*SS*0", _repeat(service, transaction)]
            made = dataset.decide(_read_procedure(service, transaction), member.member_id)
            segments += _write_decision(made, number if len(events) == 1 and len(services) < 2 else f"{number}{decided:02}")
    return segments


def _list_events(transaction: X12Transaction) -> list[tuple[Segment, list[Segment]]]:
    """Return the requested authorization: each UM with its professional, institutional and dental services."""
    found: list[tuple[Segment, list[Segment]]] = []
    for segment in transaction.segments:
        if segment.name == "UM":
            found.append((segment, []))
        elif segment.name in ("SV1", "SV2", "SV3") and found:
            found[-1][1].append(segment)
    # A service may have a UM of its own, which repeats that of its event.
    return [one for one in found if one[1]] or found[:1]


def _write_decision(made: Determination, number: str) -> list[str]:
    """Return the decision; a number is given to what is certified and to what is still looked at, never to what is denied."""
    decision = DECISIONS[made.status]
    hcr = write_segment("HCR", decision, number if decision != "A3" else "")
    return [hcr, write_segment("MSG", made.reason)] if made.reason else [hcr]


def _read_procedure(service: Segment | None, transaction: X12Transaction) -> str:
    if service is None:
        return ""
    parts = service.find_field(2 if service.name == "SV2" else 1).split(transaction.delimiters.component or ":")
    return parts[1] if len(parts) > 1 else parts[0]


def write_amount(value: float) -> str:
    """Return an amount as X12 writes it: without needless zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


def _write_payer(role: str, dataset: Dataset) -> str:
    return write_segment("NM1", role, "2", dataset.payer_name, "", "", "", "", "PI", dataset.payer_id)


def _write_subscriber(transaction: X12Transaction, member: Member | None) -> str:
    if member is not None:
        return write_segment("NM1", "IL", "1", member.last_name, member.first_name, "", "", "", "MI", member.member_id)
    sent = {name: value_at(transaction, _PATHS[f"NM1[IL].{name}"]) for name in ("3", "4", "9")}
    return write_segment("NM1", "IL", "1", sent["3"], sent["4"], "", "", "", *(("MI", sent["9"]) if sent["9"] else ()))


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
    """Return a segment as it was sent, in our delimiters."""
    divider = transaction.delimiters.component
    fields = [write_composite(*(field.split(divider) if divider else [field])) for field in segment.fields]
    return join_elements(segment.name, *fields)
