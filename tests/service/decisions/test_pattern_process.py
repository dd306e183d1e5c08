"""The pattern engine in its own process: same answers as the engine here, and a pattern that kills it is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from proctor.errors import CheckFault
from proctor.patterns import engine, script_engine
from proctor.patterns.faults import PatternError
from proctor.service.decisions.pattern_process import PatternProcess, used_for_patterns

CRASHES = """
import os, signal, time
from proctor.patterns import script_engine
from proctor.service.decisions import pattern_process
validate = script_engine.validate
def deadly(source, flags):
    if "SEGFAULT" in source:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "STUCK" in source:
        time.sleep(60)
    validate(source, flags)
script_engine.validate = deadly
pattern_process.main()
"""


@pytest.fixture
def elsewhere() -> Iterator[PatternProcess]:
    engine.compile_pattern.cache_clear()
    with used_for_patterns() as found:
        yield found
    engine.compile_pattern.cache_clear()


PATTERNS = ["(a+)+$", "(?<=x)y", "(?<year>\\d{4})-(?!00)", "\ud83d", "(", "a{2,1}", "[z-a]", "(?<n>a)(?<n>b)"]


@pytest.mark.parametrize("source", PATTERNS, ids=ascii)
def test_it_accepts_and_refuses_what_the_engine_here_does(source: str, elsewhere: PatternProcess) -> None:
    def outcome(by: script_engine.Engine | None) -> tuple[object, ...] | None:
        before = script_engine.use_engine(by)
        try:
            script_engine.validate(source, "")
        except PatternError as error:
            return error.message, error.offset, error.hint
        finally:
            script_engine.use_engine(before)
        return None

    assert outcome(elsewhere) == outcome(None)


@pytest.mark.timeout(60)
def test_it_finds_what_the_engine_here_does(elsewhere: PatternProcess) -> None:
    found = engine.compile_pattern("(?<=x)(?<word>y+)(z)?").search("\u00e9 xyy \ud83d")
    assert found is not None and (found.start, found.text, found.named, found.groups) == (3, "yy", {"word": "yy"}, ("yy", None))
    assert engine.compile_pattern("(?<=x)q").search("xy") is None
    with pytest.raises(CheckFault) as caught:
        engine.compile_pattern("^(a+)+$").search("a" * 5_000 + "b")
    assert caught.value.code == "regex_timeout"


@pytest.mark.timeout(60)
def test_a_pattern_that_ends_the_engine_is_refused_and_the_next_one_is_read() -> None:
    deadly = PatternProcess((sys.executable, "-c", CRASHES), answer_s=5.0)
    try:
        for pattern, why in (("SEGFAULT", "SIGSEGV"), ("STUCK", "no answer within 5 s"), ("SEGFAULT", "SIGSEGV")):
            with pytest.raises(PatternError, match=why):
                deadly.validate(pattern, "")
            deadly.validate("(?=fine)", "")
    finally:
        deadly.close()


PIECES = """
import sys, time
from proctor.service.decisions import pattern_process
while len(size := sys.stdin.buffer.read(4)) == 4:
    question = sys.stdin.buffer.read(int.from_bytes(size, "big"))
    frame = pattern_process._make_frame({"found": [[[0, 3]], {}]})
    for piece in (frame[:2], frame[2:9], frame[9:]):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        time.sleep(0.1)
"""


@pytest.mark.timeout(60)
def test_an_answer_that_arrives_in_pieces_is_read_whole() -> None:
    slow = PatternProcess((sys.executable, "-c", PIECES), answer_s=20.0)
    try:
        assert [slow.search("a", "", "a") for _ in range(2)] == [script_engine.Found([[0, 3]], {})] * 2
    finally:
        slow.close()


def test_without_an_engine_patterns_are_refused() -> None:
    nowhere = PatternProcess(("/nowhere/python",))
    with pytest.raises(PatternError, match="crashed the pattern engine"):
        nowhere.validate("a", "")
    with pytest.raises(CheckFault, match="crashed the pattern engine"):
        nowhere.search("a", "", "a")
    nowhere.close()


def test_its_process_loads_nothing_that_decides() -> None:
    code = "import sys, proctor.service.decisions.pattern_process; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"asyncio", "proctor.service.decisions.process", "proctor.formats.suites"} & set(done.stdout.split())
