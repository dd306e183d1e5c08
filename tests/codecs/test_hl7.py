"""HL7 v2 messages: paths by table, framing, and a second opinion from the package `hl7`."""

from __future__ import annotations

import hl7 as other
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.codecs.segments import compile_segment_path, read_messages
from proctor.errors import EvidenceError, SpecError
from tests.tables import rows

MESSAGE = "\r".join(
    [
        r"MSH|^~\&|LAB|HOSP|EHR|HOSP|20260101||ORU^R01^ORU_R01|MSG00001|P|2.5.1",
        "EVN|R01|20260101",
        r"PID|1||123^^^HOSP&1.2.3&ISO^MR~456^^^CLINIC^PI||Smith\T\Jones^Mary|" + '""',
        "OBX|1|NM|A||7.2",
        r"OBX|2|TX|B||high \F\ see \S\note\R\ \E\ end",
        r"OBX|3|TX|C||Zo\XC3AB\ ".rstrip(),
        r"OBX|4|TX|D||one\.br\two",
        r"OBX|5|TX|E||a\Zq\b",
        r"OBX|6|TX|F||a\b",
        r"OBX|7|TX|G||\XE9\ ".rstrip(),
        r"OBX|8|TX|H||a\XZZ\b",
    ]
)


def value(path: str, message: str = MESSAGE) -> str | None:
    return read_messages(message)[0].value(compile_segment_path(path))


@rows("codecs/cases/hl7_paths.yaml")
def test_a_path_selects(row):
    assert value(row["given"]) == row["expect"]


@rows("codecs/cases/segment_path_errors.yaml")
def test_a_bad_path_is_refused_with_its_offset(row):
    with pytest.raises(SpecError) as caught:
        compile_segment_path(row["given"])
    assert row["expect"] in caught.value.message
    assert (caught.value.field, caught.value.offset) == ("path", row["offset"])


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_segments_end_in_any_line_end(end):
    assert value("OBX[2].3", MESSAGE.replace("\r", end)) == "B"


def test_mllp_framing_and_byte_order_mark_are_dropped():
    assert value("MSH.3", f"\x0b{MESSAGE}\x1c\r") == "LAB"
    assert value("OBX[6].3", f"\x0b{MESSAGE}\x1c\r") == "F"
    assert value("MSH.3", "\ufeff" + MESSAGE) == "LAB"


def test_other_delimiters_are_taken_from_the_header():
    text = "MSH#*+?%#LAB\rPID#1##7*x%y+8#A?F?B"
    assert [value(path, text) for path in ("PID.3.2.2", "PID.3[2].1", "PID.4")] == ["y", "8", "A#B"]


def test_one_text_may_hold_a_batch_of_messages():
    batch = f"FHS|^~\\&|X\rBHS|^~\\&|X\r{MESSAGE}\rMSH|^~\\&|SECOND\rPID|9\rBTS|2\rFTS|1"
    messages = read_messages(batch)
    assert [message.value(compile_segment_path("MSH.3")) for message in messages] == ["LAB", "SECOND"]
    assert messages[1].value(compile_segment_path("BTS")) is None


def test_a_header_without_encoding_characters_divides_nothing():
    assert value("PID.3", "MSH|\rPID|1||1^2~3") == "1^2~3"
    assert value("PID.3.1", "MSH|\rPID|1||1^2~3") == "1^2~3"


@pytest.mark.parametrize("text", ["", "  \r\n", "PID|1", '{"payload": "MSH|"}', "MSH", "MSHX^~"])
def test_other_text_is_refused(text):
    with pytest.raises(EvidenceError, match="not an HL7 v2 message"):
        read_messages(text)


FIELDS = st.text(alphabet="ab1^~& ", max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(FIELDS, min_size=1, max_size=5))
def test_the_package_hl7_agrees_on_fields(fields):
    text = "MSH|^~\\&|A|B|C|D|20260101||ADT^A01|1|P|2.5\rPID|" + "|".join(fields) + "|end\r"
    theirs = other.parse(text)
    for number, field in enumerate(fields, start=1):
        assert (value(f"PID.{number}", text) or "") == str(theirs.segment("PID")(number)) == field


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.lists(st.text(alphabet="ab1 ", max_size=4), min_size=1, max_size=3), min_size=1, max_size=3), min_size=1, max_size=3
    )
)
def test_the_package_hl7_agrees_on_repetitions_components_and_subcomponents(field):
    written = "~".join("^".join("&".join(component) for component in repetition) for repetition in field)
    text = f"MSH|^~\\&|A|B|C|D|20260101||ADT^A01|1|P|2.5\rPID|1|x|{written}|end\r"
    theirs = other.parse(text)
    for r, repetition in enumerate(field, start=1):
        for c, component in enumerate(repetition, start=1):
            for s, expected in enumerate(component, start=1):
                assert (value(f"PID.3[{r}].{c}.{s}", text) or "") == expected
                assert theirs.extract_field("PID", 1, 3, r, c, s) == expected


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=200), st.text(alphabet="MSHPID|^~\\&XF.123\r\n\x0b\x1c", max_size=200).map("MSH|^~\\&|".__add__)))
def test_any_text_is_read_or_refused_and_every_path_answers(text):
    try:
        messages = read_messages(text)
    except EvidenceError:
        return
    for message in messages:
        for path in ("MSH.2", "PID.3[2].1", "PID[2].5.1.2", "PID"):
            found = message.value(compile_segment_path(path))
            assert found is None or found
