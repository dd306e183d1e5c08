"""The words a judge is addressed with: versioned, complete, and only the instruction can be replaced."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest

from proctor.errors import SpecError
from proctor.judge.prompt import Prompt, load_prompt
from proctor.llm import fence

FROZEN = {"2": "a7e3f48804c7d95d"}
"""A released version of the prompt is never changed: verdicts say by it what was asked. Change the words in a new folder."""
FROZEN_EXAMPLES = {"2": "0a49f625ba5e0e7b"}
"""The words before examples, which only a judge that has some is told."""


def test_our_prompt_is_complete() -> None:
    prompt = load_prompt()
    assert prompt.version == "2"
    assert [name for name in Prompt.__struct_fields__ if not getattr(prompt, name)] == ["decisions"]


def test_a_version_never_changes() -> None:
    prompt = load_prompt()
    always = [name for name in Prompt.__struct_fields__ if name not in ("examples", "decisions")]
    words = "\n".join(getattr(prompt, name) for name in always)
    assert sha256(words.encode()).hexdigest()[:16] == FROZEN[prompt.version]
    assert sha256(prompt.examples.encode()).hexdigest()[:16] == FROZEN_EXAMPLES[prompt.version]


def test_our_words_hold_the_placeholders_that_are_filled_in_and_no_others() -> None:
    prompt = load_prompt()
    found = {name: set(re.findall(r"\{\{(\w+)\}\}", getattr(prompt, name))) for name in Prompt.__struct_fields__}
    assert {name: names for name, names in found.items() if names} == {
        "lead_in": {"marker"},
        "reminder": {"cuts", "ids"},
        "examples": {"marker"},
    }


def test_the_boundary_shows_the_lines_as_they_are_written() -> None:
    boundary = load_prompt().boundary
    assert fence.make_opening_line("marker") in boundary.split("\n")
    assert fence.make_closing_line("marker") in boundary.split("\n")


def test_a_custom_text_replaces_the_instruction_alone() -> None:
    ours, custom = load_prompt(), load_prompt("  Judge as a pirate would. {{marker}} \ud800 ")
    assert custom.instruction == "Judge as a pirate would. {{marker}}"
    assert re.fullmatch(r"custom-[0-9a-f]{8}", custom.version)
    different = {name for name in Prompt.__struct_fields__ if getattr(ours, name) != getattr(custom, name)}
    assert different == {"version", "instruction"}


def test_the_version_of_a_custom_text_depends_on_the_text() -> None:
    assert load_prompt("one").version == load_prompt("one").version != load_prompt("two").version


def test_an_empty_custom_text_is_refused() -> None:
    with pytest.raises(SpecError, match="found an empty text"):
        load_prompt(" \n")
