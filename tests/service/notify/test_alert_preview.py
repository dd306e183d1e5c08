"""A rule applied to the past: what was measured when, and when the rule would have fired."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.service.hub import stamp
from proctor.service.notify.alert_kinds import KINDS, AlertKind, judge_counts
from proctor.service.notify.alerts import Past, follow_rule, thin_points

RATE = {"below": 0.6, "window_s": 100, "minimum": 2}
OFTEN = {"times": 2, "window_s": 100, "case_id": None}
LACKING = {"above": 0.4, "window_s": 100, "minimum": 2}


def list_past(text: str) -> Past:
    """`10p 20f 30m`: passed at 10, failed at 20, at 30 something was missing."""
    words = {"p": ("pass", None), "f": ("fail", None), "e": ("error", None), "s": ("skip", None), "m": ("fail", "missing_evidence")}
    return [(float(word[:-1]), *words[word[-1]]) for word in text.split()]


@pytest.mark.parametrize(
    ("kind", "settings", "past", "since", "periods"),
    [
        ("pass_rate", RATE, "", 0, []),
        ("pass_rate", RATE, "10f", 0, []),
        ("pass_rate", RATE, "10p 20p 30p", 0, []),
        ("pass_rate", RATE, "10p 20f 30p 40p", 0, [(20, 30)]),
        # Too few results leave it as it is: it stays firing when the window empties.
        ("pass_rate", RATE, "10f 20f", 0, [(20, None)]),
        ("pass_rate", RATE, "10f 20f 300p 310p", 0, [(20, 310)]),
        ("pass_rate", RATE, "10s 20s 30s", 0, []),
        # Results of one moment count together.
        ("pass_rate", RATE, "10f 10p 10p", 0, []),
        ("failing_case", OFTEN, "10f 20e", 0, [(20, 110)]),
        ("failing_case", OFTEN, "10f 20p 500f 510f", 0, [(510, 600)]),
        ("missing_evidence", LACKING, "10m 20m 30p 40p 50p", 0, [(20, 50)]),
        # An episode that began before the period is listed with its start; one that ended before it is not.
        ("pass_rate", RATE, "10f 20f 300p 310p", 100, [(100, 310)]),
        ("pass_rate", RATE, "10f 20f 30p 40p 300f 310f", 200, [(310, None)]),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_a_rule_would_have_fired(
    kind: AlertKind, settings: dict[str, Any], past: str, since: int, periods: list[tuple[int, int | None]]
) -> None:
    found = follow_rule(kind, settings, list_past(past), since, 1_000)
    assert found.periods == [{"since": stamp(one), "until": None if other is None else stamp(other)} for one, other in periods]


@given(st.lists(st.tuples(st.integers(0, 2_000), st.sampled_from("pfesm")), max_size=40), st.sampled_from(sorted(KINDS)))
def test_a_preview_ends_in_the_state_the_service_would_find(steps: list[tuple[int, str]], kind: AlertKind) -> None:
    past = list_past(" ".join(f"{at}{letter}" for at, letter in sorted(steps)))
    settings = {**KINDS[kind].defaults, "window_s": 300}
    found = follow_rule(kind, settings, past, 0, 2_000)
    counts = [(outcome, code, 1) for at, outcome, code in past if at > 1_700]
    _, _, firing = judge_counts(kind, settings, counts)
    if firing is not None:
        assert (found.firing or False) == firing
    assert all(one["until"] is not None for one in found.periods[:-1])


def test_a_picture_has_a_bounded_number_of_points() -> None:
    many = [(float(number), 0.5) for number in range(10_000)]
    assert len(thin_points(many)) == 200 and thin_points(many)[0] == many[0] and thin_points(many)[-1] == many[-1]
    assert thin_points(many[:3]) == many[:3]
