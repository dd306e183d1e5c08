"""The judge prompts: versioned and complete, and only the instruction can be replaced."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest

from proctor.errors import SpecError
from proctor.judge.prompt import Prompt, load_prompt
from proctor.llm import fence

FROZEN = {"2": "4d6c5b77fece1855"}
"""A released prompt never changes, because verdicts store its version. Put changed text in a new folder."""


def test_our_prompt_is_complete() -> None:
    prompt = load_prompt()
    assert prompt.version == "2"
    assert all(getattr(prompt, name) for name in Prompt.__struct_fields__ if name != "decisions")


def test_a_version_never_changes() -> None:
    prompt = load_prompt()
    words = "\n".join(getattr(prompt, name) for name in Prompt.__struct_fields__)
    assert sha256(words.encode()).hexdigest()[:16] == FROZEN[prompt.version]


def test_prompt_texts_have_exactly_the_known_placeholders() -> None:
    prompt = load_prompt()
    found = {name: set(re.findall(r"\{\{(\w+)\}\}", getattr(prompt, name))) for name in Prompt.__struct_fields__}
    assert {name: names for name, names in found.items() if names} == {
        "lead_in": {"marker"},
        "reminder": {"cuts", "ids"},
        "examples": {"marker"},
    }


def test_the_boundary_shows_the_exact_marker_lines() -> None:
    boundary = load_prompt().boundary
    opening, _, closing = fence.fence_line("", "marker").split("\n")
    assert {opening, closing} <= set(boundary.split("\n"))


def test_a_custom_text_replaces_only_the_instruction() -> None:
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
