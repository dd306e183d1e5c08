"""The account of an evidence, part by part."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence.reading import read_document
from proctor.evidence.unknowns.account import find_known, write_known
from proctor.model.account import PARTS
from proctor.model.evidence import Evidence
from tests.tables import rows

USUAL = "unknown: not recorded in this evidence"


@rows("evidence/cases/account.yaml")
def test_every_part_is_recorded_none_or_not_known(row: dict[str, Any]) -> None:
    document = write_known(find_known(msgspec.convert(row["given"], Evidence)))
    assert list(document["parts"]) == list(PARTS)
    states = {part: ": ".join(filter(None, (state["status"], state.get("why")))) for part, state in document["parts"].items()}
    assert {part: words for part, words in states.items() if words != USUAL} == row["expect"]["parts"]
    assert document["reader"] == row["expect"]["reader"]
    assert document.get("notes", []) == row["expect"].get("notes", [])


def test_plain_records_that_are_known_alike_share_one_account() -> None:
    assert find_known(Evidence(text="a")) is find_known(Evidence(text="b"))
    assert find_known(Evidence(text="a")) is not find_known(Evidence(text=""))


def test_a_document_of_another_format_names_its_reader() -> None:
    [found] = read_document({"data": {"status_code": 200, "body": {"text": "hi"}}})
    assert find_known(found).reader == "Mibo data body"
