from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.cassettes.entries import REDACTED
from proctor.cassettes.redaction import redact
from proctor.model.show import shorten, show
from proctor.service.verification.shared.hidden_values import HiddenValues, find_hidden_values


def hidden_in(value: Any) -> HiddenValues:
    return find_hidden_values(value, redact(value))


HIDDEN: list[tuple[Any, str, str]] = [
    ({"password": "hunter2hunter2"}, 'expected "a", found "hunter2hunter2"', f'expected "a", found "{REDACTED}"'),
    ({"credentials": {"a": {"b": ["deep-1", "deep-2"]}}}, "deep-1, deep-2", f"{REDACTED}, {REDACTED}"),
    ({"credentials": {"pin": 4711}}, "is 4711 and not 47110", f"is {REDACTED} and not {REDACTED}0"),
    ({"credentials": {"pin": 12}}, "12 of 123", f"{REDACTED} of 123"),
    ({"credentials": {"pin": 1}}, "1 of 1 fields hold", "1 of 1 fields hold"),
    ({"password": 'a "quoted" one'}, show('a "quoted" one'), f'"{REDACTED}"'),
    ({"password": "ünï-çode"}, json.dumps("ünï-çode"), f'"{REDACTED}"'),
    ({"content": '{"password": "na\\u00efve-one"}'}, "naïve-one", REDACTED),
    ({"credentials": '{"user": "bob-the-first"}'}, "bob-the-first", REDACTED),
    ({"note": "see Bearer abcdef-0123456789 there"}, "abcdef-0123456789", REDACTED),
    ({"headers": [{"name": "Authorization", "value": "opensesame"}]}, "opensesame", REDACTED),
    ({"has_password": True, "password": ""}, "True", "True"),
    ({"status": "submitted"}, "submitted", "submitted"),
]


@pytest.mark.parametrize(("state", "text", "shown"), HIDDEN)
def test_values_hidden_in_a_state_are_hidden_in_sentences(state: Any, text: str, shown: str) -> None:
    assert hidden_in(state).hide_text(text) == shown


@pytest.mark.parametrize("length", [20, 150, 170, 400, 5_000])
@pytest.mark.parametrize("before", [0, 50, 90, 100, 150])
def test_nothing_is_left_of_a_value_that_was_cut(length: int, before: int) -> None:
    secret = "".join(chr(97 + (number * 7 + number // 26) % 26) for number in range(length))
    hidden = hidden_in({"token": secret})
    for text in (
        shorten("-" * before + secret),
        show({"x": "-" * before, "y": secret}),
        f"found {show(secret)}; and",
        shorten(secret, 500),
    ):
        shown = hidden.hide_text(text)
        assert not any(secret[start : start + 4] in shown for start in range(len(secret) - 3)), (text, shown)


def test_text_of_authors_stays_and_found_values_are_hidden() -> None:
    hidden = hidden_in({"authorization": "granted", "credentials": {"level": 3, "by": "x"}})
    entry = {
        "criterion_id": "crit_granted",
        "score": 3,
        "details": "authorization is different",
        "evidence": {
            "held": 3,
            "field_results": [
                {"path": "granted", "expected": "granted", "actual": "granted", "passed": True},
                {"path": "credentials", "expected": None, "actual": {"level": 3, "by": "x", "other": "granted!"}, "passed": False},
            ],
        },
        "code": None,
    }
    result = hidden.hide_result(entry)
    first, second = result["evidence"]["field_results"]
    assert (result["criterion_id"], result["score"], result["evidence"]["held"]) == ("crit_granted", 3, 3)
    assert first == {"path": "granted", "expected": "granted", "actual": REDACTED, "passed": True}
    assert second["actual"] == {"level": REDACTED, "by": REDACTED, "other": f"{REDACTED}!"} and second["expected"] is None


def test_nothing_is_changed_where_nothing_is_hidden() -> None:
    entry = {"details": "a password is none", "evidence": {"actual": {"password": "kept as it was told"}}}
    assert HiddenValues().hide_result(entry) is entry and not hidden_in({"a": 1, "b": ["x"]})


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "password", "token", "note"]), inner, max_size=3),
    max_leaves=12,
)


@given(_JSON)
@settings(max_examples=200)
def test_hiding_a_value_leaves_no_text_that_redacting_took_out(value: Any) -> None:
    hidden = hidden_in({"password": value})
    shown = json.dumps(hidden.hide(value), ensure_ascii=False)
    waiting = [value]
    while waiting:
        entry = waiting.pop()
        if isinstance(entry, dict):
            waiting += entry.values()
        elif isinstance(entry, list):
            waiting += entry
        elif isinstance(entry, str) and len(entry) >= 4 and entry.isalnum() and entry not in REDACTED:
            assert entry not in shown
