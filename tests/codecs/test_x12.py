"""X12 interchanges: paths by table on a published 271, envelopes and delimiters by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.codecs.segments import compile_segment_path, read_transactions
from proctor.errors import EvidenceError
from tests.tables import rows

SAMPLES = Path(__file__).parent / "samples" / "x12"
ISA = "ISA*00*          *00*          *ZZ*SENDER         *ZZ*RECEIVER       *080503*1705*^*00501*000010216*0*T*:~"


def sample(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


def value(path: str, text: str) -> str | None:
    return read_transactions(text)[-1].value(compile_segment_path(path))


@rows("codecs/cases/x12_paths.yaml")
def test_a_path_selects(row):
    assert value(row["given"], sample("271-eligible.edi")) == row["expect"]


def test_a_rejection_is_readable():
    text = sample("271-rejected.edi")
    assert [value(path, text) for path in ("AAA.1", "AAA.3", "AAA.4", "EB.1")] == ["Y", "50", "N", None]


def test_components_follow_the_separator_of_the_interchange():
    text = ISA + "GS*HN*A*B~ST*277*1~STC*A2:20:PR*20260101**100~STC*~SE*3*1~GE*1*1~IEA*1*1~"
    assert [value(path, text) for path in ("STC.1", "STC.1.1", "STC.1.2", "STC.1.4", "STC.4")] == ["A2:20:PR", "A2", "20", None, "100"]


def test_repetition_and_component_together():
    text = ISA + "ST*271*1~EB*1**30^A:B^35~SE*2*1~"
    assert [value(path, text) for path in ("EB.3[2]", "EB.3[2].2", "EB.3.1", "EB.3[4]")] == ["A:B", "B", "30", None]


def test_an_old_interchange_has_no_repetitions():
    text = ISA.replace("*^*00501*", "*U*00401*") + "ST*271*1~EB*1**3U0~SE*2*1~"
    assert value("EB.3", text) == "3U0"
    assert value("EB.3[2]", text) is None


@pytest.mark.parametrize("between", ["\n", "\r\n", " \n"])
def test_line_ends_after_segments_are_dropped(between):
    text = sample("271-eligible.edi").replace("~", "~" + between)
    assert value("NM1[IL].3", text) == "SMITH"
    assert read_transactions(text)[0].kind == "271"


def test_a_line_end_may_be_the_terminator():
    assert value("NM1[IL].3", sample("271-eligible.edi").replace("~", "\n")) == "SMITH"


def test_several_transactions_and_interchanges_keep_their_envelopes():
    one = ISA + "GS*HB*A~ST*271*1~EB*1~SE*2*1~ST*271*2~EB*6~SE*2*2~GE*2*1~IEA*1*1~\n"
    two = ISA.replace("SENDER", "OTHER ").replace("*", "|").replace("~", "!") + "GS|HN|B!ST|277|3!STC|A2>1!SE|2|3!GE|1|1!IEA|1|1!"
    found = read_transactions(one + two)
    paths = [compile_segment_path(path) for path in ("ST.2", "EB.1", "ISA.6", "GS.2")]
    assert [[each.value(path) for path in paths] for each in found] == [
        ["1", "1", "SENDER", "A"],
        ["2", "6", "SENDER", "A"],
        ["3", None, "OTHER", "B"],
    ]


def test_a_transaction_that_breaks_off_is_still_read():
    assert value("EB.1", ISA + "ST*271*1~EB*1") == "1"


def test_short_padding_is_forgiven():
    text = "ISA*00**00**ZZ*A*ZZ*B*080503*1705*^*00501*1*0*T*:~ST*271*1~EB*1~SE*2*1~"
    assert [value(path, text) for path in ("ISA.6", "ISA.2", "EB.1")] == ["A", None, "1"]


@pytest.mark.parametrize("text", ["", "ST*271*1~SE*1*1~", "{}", "ISA", "ISA*00*", "ISA" + "*" * 300, "ISAA" * 50])
def test_other_text_is_refused(text):
    with pytest.raises(EvidenceError, match="not an X12 interchange"):
        read_transactions(text)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=200), st.text(alphabet="ISAGTEB*~:^123\n", max_size=200).map(ISA.__add__)))
def test_any_text_is_read_or_refused_and_every_path_answers(text):
    try:
        found = read_transactions(text)
    except EvidenceError:
        return
    for transaction in found:
        assert transaction.segments[0].name == "ST"
        for path in ("ST.1", "EB[2].3[2].1", "ISA.16", "GS.1", "SE"):
            picked = transaction.value(compile_segment_path(path))
            assert picked is None or picked


def test_many_interchanges_are_read_in_reasonable_time():
    assert len(read_transactions((ISA + "ST*271*1~SE*1*1~IEA*1*1~") * 5_000)) == 5_000
