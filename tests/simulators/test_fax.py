"""The fax line: outgoing and incoming documents, and their text."""

from __future__ import annotations

import base64
import io
import struct
import sys
from typing import Any

import pytest

from proctor.errors import SpecError
from proctor.model.case import Step
from proctor.simulators.kinds import fax
from proctor.simulators.kinds.fax import count_sheets, read_document, write_pdf
from tests.simulators.workplace import NOW, Workplace, read, refusal

TIFF = b"II*\x00" + struct.pack("<IHI", 8, 0, 14) + struct.pack("<HI", 0, 0)
"""Two directories without entries."""


@pytest.fixture
def line() -> Workplace:
    return Workplace("fax", {"number": "+15550200", "inbox": [{"from": "+15550101", "text": "Referral for Ann", "patient_id": "ann"}]})


def test_a_text_is_sent_as_a_pdf(line: Workplace) -> None:
    sent = line.ask(
        "POST", "/faxes", {"to_number": "+15550199", "document_type": "return", "patient_id": "ann", "text": "No signature (yet)"}
    )
    row = read(sent)
    assert sent.status == 201 and row == {
        "id": row["id"],
        "direction": "outbound",
        "to": "+15550199",
        "from": "+15550200",
        "status": "delivered",
        "patient_id": "ann",
        "document_type": "return",
        "pages": 1,
        "text": "No signature (yet)",
        "content_type": "application/pdf",
        "size": row["size"],
        "at": NOW,
    }
    document = line.ask("GET", f"/faxes/{row['id']}/document")
    assert document.headers["content-type"] == "application/pdf" and document.body.startswith(b"%PDF-1.4")
    assert len(document.body) == row["size"] and b"(No signature \\(yet\\)) Tj" in document.body
    state = line.state()
    assert state.fax is not None and state.fax.documents[1] == row
    assert [(one.change, one.place) for one in state.changes or ()] == [("added", f"faxes/{row['id']}")]


def test_a_fax_that_arrived_is_passed_on(line: Workplace) -> None:
    (arrived,) = line.get("/faxes?direction=inbound")["faxes"]
    assert (arrived["text"], arrived["pages"], arrived["status"]) == ("Referral for Ann", 1, "received")
    sent = read(line.ask("POST", "/faxes", {"to_number": "+15550199", "content_reference": arrived["id"]}))
    assert (sent["text"], sent["direction"], sent["size"]) == ("Referral for Ann", "outbound", arrived["size"])
    assert line.get("/faxes?direction=outbound")["total"] == 1


def test_a_tiff_has_pages_and_no_text(line: Workplace) -> None:
    row = read(line.ask("POST", "/faxes?to_number=%2B15550199&document_type=scan", TIFF, content_type="image/tiff"))
    assert (row["content_type"], row["pages"], row["text"], row["document_type"]) == ("image/tiff", 2, "", "scan")
    assert line.ask("GET", f"/faxes/{row['id']}/document").body == TIFF
    same = read(line.ask("POST", "/faxes", {"to": "+15550199", "document": base64.b64encode(TIFF).decode()}))
    assert same["pages"] == 2


def test_the_text_layer_of_a_pdf_is_read(line: Workplace) -> None:
    pytest.importorskip("pypdf", reason="an extra, which not every environment has")
    text = "Referral of Ann Müller (DOB 1980-02-01)\n" + "line\n" * 100
    row = read(line.ask("POST", "/faxes?to=%2B15550199", write_pdf(text), content_type="application/pdf"))
    assert (row["pages"], row["pages"]) == (2, count_sheets(text))
    assert "Referral of Ann Müller (DOB 1980-02-01)" in row["text"]
    broken = read(line.ask("POST", "/faxes?to=%2B15550199", b"%PDF-1.4\nwhat", content_type="application/pdf"))
    assert (broken["pages"], broken["text"]) == (None, "") and "cannot be read" in broken["note"]


def test_a_pdf_without_a_reader_is_stored_with_the_reason_for_missing_text(line: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    row = read(line.ask("POST", "/faxes?to=%2B15550199", write_pdf("hello"), content_type="application/pdf"))
    assert (row["pages"], row["text"]) == (None, "") and "pypdf is not installed" in row["note"]
    state = line.state()
    assert state.fax is not None and "pages" not in state.fax.documents[1], "unknown is not none"


@pytest.mark.parametrize(
    ("data", "pages"),
    [(TIFF, 2), (b"II*\x00", None), (TIFF[:14], 1), (b"MM\x00*" + struct.pack(">IHI", 8, 0, 8), 1), (b"II*\x00\xff\xff\xff\xff", None)],
)
def test_a_tiff_that_is_broken_or_goes_in_circles_is_read_as_far_as_it_goes(data: bytes, pages: int | None) -> None:
    found = read_document(data)
    assert found is not None and found.pages == pages


@pytest.mark.parametrize("data", [b"", b"what", b"\x89PNG\r\n", b"{}"])
def test_other_content_is_no_document(data: bytes) -> None:
    assert read_document(data) is None


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"text": "x"}, 422, "wrong_value"),
        ({"to_number": "ann", "text": "x"}, 422, "wrong_value"),
        ({"to_number": "+15550199"}, 422, "wrong_value"),
        ({"to_number": "+15550199", "text": "x", "document": "x"}, 422, "wrong_value"),
        ({"to_number": "+15550199", "document": "!"}, 422, "wrong_value"),
        ({"to_number": "+15550199", "document": "eHg="}, 422, "wrong_document"),
        ({"to_number": "+15550199", "content_reference": "file-7"}, 422, "unknown_reference"),
        (b"GIF89a", 400, "bad_json"),
    ],
)
def test_an_unsendable_message_is_refused(line: Workplace, body: Any, status: int, code: str) -> None:
    assert refusal(line.ask("POST", "/faxes", body)) == (status, code)
    assert line.state().changes == ()


def test_a_document_beyond_the_limit_is_refused(line: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fax, "MOST_BYTES", 1_000)
    monkeypatch.setattr(fax, "MOST_TEXT", 10)

    def send(body: Any) -> int:
        response = line.ask("POST", "/faxes?to=%2B15550199", body)
        assert response.status == 201 or refusal(response)[1] == "too_large"
        return response.status

    largest, encoded = TIFF.ljust(1_000), base64.b64encode(TIFF.ljust(1_001)).decode()
    assert [send(body) for body in (largest, largest + b" ", b" " * 2_001)] == [201, 413, 413]
    assert send({"to": "+15550199", "document": encoded}) == 413
    assert [send({"to": "+15550199", "text": "x" * length}) for length in (10, 11)] == [201, 413]


def test_a_missing_resource_is_refused(line: Workplace) -> None:
    assert refusal(line.ask("GET", "/faxes/x")) == (404, "not_found")
    assert refusal(line.ask("GET", "/faxes/x/pages")) == (404, "not_found")
    assert refusal(line.ask("DELETE", "/faxes")) == (405, "method_not_allowed")


def test_a_fax_arrives_in_a_scenario() -> None:
    given = {"from": "+15550101", "document": base64.b64encode(TIFF).decode(), "document_type": "referral"}
    line = Workplace("fax", None, scenario=(Step(name="fax_arrives", given=given),))
    (row,) = line.get("/faxes")["faxes"]
    assert (row["direction"], row["pages"], row["document_type"]) == ("inbound", 2, "referral")
    assert line.state().changes == ()


@pytest.mark.parametrize(
    ("seed", "message", "place"),
    [
        ({"number": "x"}, "fax number", "fax.seed.number"),
        ({"inbox": [{"from": "+15550101"}]}, "one of text", "fax.seed.inbox.0"),
        ({"inbox": [{"from": "x", "text": "x"}]}, "fax number", "fax.seed.inbox.0.from"),
        ({"inbox": [{"text": "x", "to": "y"}]}, "unknown key", "fax.seed.inbox.0.to"),
    ],
)
def test_an_unusable_seed_is_refused_at_its_place(seed: Any, message: str, place: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        Workplace("fax", seed)
    assert caught.value.field == place


def test_unreadable_pdf_pages_are_reported(line: Workplace) -> None:
    pypdf = pytest.importorskip("pypdf", reason="an extra, which not every environment has")
    drawn = write_pdf("x").replace(b"(x) Tj", b"0 0 m ")
    writer = pypdf.PdfWriter()
    for document in (write_pdf("cover"), drawn, drawn):
        writer.append(io.BytesIO(document))
    writer.add_blank_page()
    held = io.BytesIO()
    writer.write(held)
    row = read(line.ask("POST", "/faxes?to=%2B15550199", held.getvalue(), content_type="application/pdf"))
    assert (row["pages"], row["unread"]) == (4, "2 pages have no text layer") and "cover" in row["text"]
    again = read(line.ask("POST", "/faxes", {"to": "+15550199", "content_reference": row["id"]}))
    assert again["unread"] == row["unread"]
