"""Requests that are small and take long to answer: one row for each kind, used here and by the live test of a whole service."""

from __future__ import annotations

import base64
import zlib
from typing import Any, NamedTuple

import msgspec

PEOPLE = 2_000
FORM = "application/x-www-form-urlencoded"
SEEDS: dict[str, Any] = {
    "fhir": [
        {
            "resourceType": "Patient",
            "id": f"p{number}",
            "name": [{"family": f"Family {number}", "given": ["Ann", "Bea", "Cleo"]}],
            "gender": "female",
            "birthDate": "1980-01-01",
            "telecom": [{"system": "phone", "value": f"+1555{number:07}"}] * 3,
            "text": {"status": "generated", "div": "<div>" + "a" * 1_000 + "</div>"},
        }
        for number in range(PEOPLE)
    ]
    + [{"resourceType": "Observation", "id": f"o{number}", "subject": {"reference": f"Patient/p{number}"}} for number in range(PEOPLE)],
    "records": {"orders": [{"id": number, "tags": list(range(20)), "note": "word " * 100, "a": {"b": number}} for number in range(PEOPLE)]},
    "fax": {},
    "files": {f"inbox/{number}.txt": "a" for number in range(PEOPLE)},
    "messages": {"people": [{"id": "ann", "phone": "+15550101"}], "answers": ["Yes."]},
    "hl7": {},
    "x12": {"members": [{"member_id": "ann"}]},
}


class Heavy(NamedTuple):
    """One such request."""

    kind: str
    method: str
    target: str
    body: bytes = b""
    content_type: str = "application/json"


def _write_pdf(content: bytes, pages: int = 1) -> bytes:
    """Write a PDF of pages that share one compressed content."""
    packed = zlib.compress(content, 1)
    kids = b" ".join(b"%d 0 R" % (5 + index) for index in range(pages))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, pages),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Courier >>",
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed),
    ]
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 842] /Resources << /Font << /F1 3 0 R >> >> /Contents 4 0 R >>"
    out, places = bytearray(b"%PDF-1.4\n"), list[int]()
    for number, each in enumerate([*objects, *[page] * pages], 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n"
    return bytes(out) + end % (len(places) + 1, table, len(places) + 1, len(out))


def _bundle(kind: str, entries: list[dict[str, Any]]) -> bytes:
    return msgspec.json.encode({"resourceType": "Bundle", "type": kind, "entry": entries})


def _searches(url: str, count: int) -> bytes:
    return _bundle("batch", [{"request": {"method": "GET", "url": url}}] * count)


def _join(pair: str, count: int) -> str:
    return "&".join(pair.format(number) for number in range(count))


_FAX = "/faxes?to_number=%2B15550100"
_OPERATORS = b"BT\n" + b"1 0 0 1 0 0 cm\n" * 1_000_000 + b"ET"
_TEXTS = b"(a) Tj T*\n"
_HL7 = b"MSH|^~\\&|A|B|C|D|2026||ADT^A01|1|P|2.5\r" + b"PID|1||17~18~19^a&b\r" * 50_000
_X12 = (
    b"ISA*00*          *00*          *ZZ*A              *ZZ*B              *260101*0101*^*00501*000000001*0*P*:~"
    b"GS*HS*A*B*20260101*0101*1*X*005010X279A1~ST*270*0001~"
)
_WORDS = ",".join(f"w{number}" for number in range(5_000))
_PATCH = [{"op": "add", "path": "/name/-", "value": {"family": "x" * 50}}] * 1_000
_NEW = {"resourceType": "Patient", "name": [{"family": "New"}]}
_CREATION = {"request": {"method": "POST", "url": "Patient"}, "resource": _NEW}
_DEEP = ".".join("a" * 1 for _ in range(10_000))

HEAVY: dict[str, Heavy] = {
    "pdf with many operators": Heavy("fax", "POST", _FAX, _write_pdf(_OPERATORS)),
    "pdf with many texts": Heavy("fax", "POST", _FAX, _write_pdf(b"BT /F1 9 Tf\n" + _TEXTS * 200_000 + b"ET")),
    "pdf with many pages": Heavy("fax", "POST", _FAX, _write_pdf(b"BT /F1 9 Tf\n" + _TEXTS * 5_000 + b"ET", 400)),
    "pdf that unpacks to much": Heavy("fax", "POST", _FAX, _write_pdf(b" " * 300_000_000)),
    "pdf in base64": Heavy(
        "fax",
        "POST",
        "/faxes",
        msgspec.json.encode({"to_number": "+15550100", "document": base64.b64encode(_write_pdf(_OPERATORS)).decode()}),
    ),
    "batch of searches": Heavy("fhir", "POST", "/", _searches("Patient?name:contains=zzz&_sort=family", 100)),
    "batch of large answers": Heavy("fhir", "POST", "/", _searches("Patient?_count=1000", 400)),
    "batch of 200 large answers": Heavy("fhir", "POST", "/", _searches("Patient?_count=1000", 200)),
    "batch of 200 searches": Heavy("fhir", "POST", "/", _searches("Patient?name:contains=zzz&family:contains=zzz&_sort=family,given", 200)),
    "batch of creations": Heavy(
        "fhir", "POST", "/", _bundle("batch", [{"request": {"method": "POST", "url": "Patient"}, "resource": _NEW}] * 2_000)
    ),
    "batch of histories": Heavy("fhir", "POST", "/", _searches("Patient/_history", 400)),
    "transaction with conditions": Heavy(
        "fhir",
        "POST",
        "/",
        _bundle(
            "transaction",
            [{"request": {"method": "POST", "url": "Patient", "ifNoneExist": "name:contains=zzz"}, "resource": _NEW} for _ in range(2_000)],
        ),
    ),
    "search with many conditions": Heavy("fhir", "GET", "/Patient?" + _join("name:contains=a&family:contains=F&phone=%2B1555{}", 600)),
    "search with 100 conditions": Heavy("fhir", "GET", "/Patient?" + _join("name:contains=a&phone:not=x{}", 50)),
    "search by POST": Heavy("fhir", "POST", "/Patient/_search", _join("name:contains=a&_x{}=1&given=C", 100_000).encode(), FORM),
    "search with many values": Heavy("fhir", "GET", f"/Patient?name={_WORDS}"),
    "search with many sort keys": Heavy("fhir", "GET", "/Patient?_sort=" + "family,given,phone," * 2_000),
    "search with many includes": Heavy("fhir", "GET", "/Patient?_count=1000&" + _join("_revinclude=Observation:*&_x{}=1", 1_000)),
    "search with 99 includes": Heavy("fhir", "GET", "/Patient?_count=1000&" + _join("_revinclude=Observation:*", 99)),
    "search with 20 sort keys": Heavy("fhir", "GET", "/Patient?_sort=" + ",".join(["family", "given", "phone", "birthdate"] * 5)),
    "search with 1000 values": Heavy("fhir", "GET", "/Patient?name:contains=" + ",".join(f"w{n}" for n in range(1_000))),
    "search with chains": Heavy("fhir", "GET", "/Observation?" + _join("subject.name:contains=a{}", 20)),
    "patch with many operations": Heavy("fhir", "PATCH", "/Patient/p1", msgspec.json.encode(_PATCH), "application/json-patch+json"),
    "elements of a page": Heavy("fhir", "GET", "/Patient?_count=1000&_elements=" + "a," * 25_000),
    "records with many sort keys": Heavy("records", "GET", "/orders?_sort=" + "a.b,id," * 10_000),
    "records with many filters": Heavy("records", "GET", "/orders?" + _join("note__contains=word&f{0}__ne={0}", 2_000)),
    "records with 20 sort keys": Heavy("records", "GET", "/orders?_sort=" + ",".join(["a.b", "-id"] * 10)),
    "records with 100 filters": Heavy("records", "GET", "/orders?" + _join("note__contains=word&tags__ne=x{0}", 50)),
    "records with many values": Heavy("records", "GET", f"/orders?tags__in={_WORDS}"),
    "records with a long path": Heavy("records", "GET", f"/orders?{_DEEP}=1&{_DEEP}b=1"),
    "files in one list": Heavy("files", "GET", "/?" + _join("prefix=a{}", 5_000)),
    "messages in a form": Heavy("messages", "POST", "/messages", _join("f{0}={0}", 50_000).encode(), FORM),
    "segments of HL7": Heavy("hl7", "POST", "/outbound", _HL7, "text/plain"),
    "segments of X12": Heavy(
        "x12",
        "POST",
        "/270",
        _X12 + b"HL*1**20*1~NM1*IL*1*A*B****MI*ann~" * 25_000 + b"SE*3*0001~GE*1*1~IEA*1*000000001~",
        "text/plain",
    ),
}
