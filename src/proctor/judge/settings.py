"""Settings of a judge: everything in `judge:` of a suite or of `proctor.yaml` except the model."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.json_values import is_finite
from proctor.model.show import show

MOST: Final = {"samples": 101, "concurrency": 1_000, "retries": 100}
"""The maximum number of samples and models: every sample of every model is a request that is prepared at once."""


class JudgeSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One judge, or a jury of several models that judge alike."""

    name: str = ""
    """What reports call it; the model's name when left out."""
    samples: int = 1
    """How often each question is sent to each model."""
    combine: Literal["majority", "mean"] = "majority"
    """How several answers become one: by vote, or by the mean of the scores against the threshold."""
    agreement: float = 0.5
    """More than this share of the requested judgements must agree; otherwise the judge is uncertain."""
    quorum: float = 0.5
    """More than this share of the requested judgements must be given; otherwise there is no decision."""
    margin: float = 0.0
    """A score this near to the threshold, or nearer, is uncertain; 0 decides every score."""
    uncertain: Literal["error", "fail"] = "error"
    """What an uncertain judgement counts as."""
    temperature: float | None = 0.0
    """How freely the model words its answers; null leaves it to the provider, as models that take none want it."""
    max_tokens: int = 4000
    """The most tokens of one reply."""
    seed: int | None = None
    """Asks providers that know seeds for the same answer again; each further sample has the next number."""
    structured: Literal["auto", "schema", "text"] = "auto"
    """Whether the model is held to the shape of the reply: `auto` asks for it, and does without where the model refuses."""
    timeout_s: float = 60.0
    """Seconds for one request."""
    retries: int = 2
    """How often a fault of the transport or a full provider is tried again."""
    backoff_s: float = 0.5
    """Seconds before the first new try, doubled for each further one; a provider that names its own wait gets that, up to `timeout_s`."""
    concurrency: int = 8
    """How many requests are under way at once, over all cases."""
    max_calls: int | None = None
    """The most requests of one run; what comes after is `judge_budget`."""
    max_chars: int = 48_000
    """How much of what the agent wrote is shown; the cut is visible to the judge, and reported in the verdict."""
    order_seed: int = 0
    """Mixes the order of the items that are judged together."""
    share_over_repeats: bool = False
    """Whether repeats of a case may be answered by one and the same remembered reply."""
    prompt: str | None = None
    """The text of an instruction to use instead of ours."""
    decisions: tuple[dict[str, Json], ...] = ()
    """Decisions of people that every request shows: `criterion`, `answer`, `met`, and `context`, `reference` and `why` where known."""

    def __post_init__(self) -> None:
        for field, least in (("samples", 1), ("max_tokens", 1), ("concurrency", 1), ("retries", 0), ("max_chars", 200), ("max_calls", 0)):
            value = getattr(self, field)
            if value is not None and value < least:
                raise SpecError(f"expected at least {least}, found {value}", field=field)
        for field, most in MOST.items():
            value = getattr(self, field)
            if value > most:
                raise SpecError(f"expected at most {most}, found {show(value, 40)}", field=field)
        for field in ("agreement", "quorum", "margin"):
            value = getattr(self, field)
            if not (is_finite(value) and 0 <= value < 1):
                raise SpecError(f"expected a number from 0 to below 1, found {value}", field=field)
        for field in ("timeout_s", "backoff_s"):
            value = getattr(self, field)
            if not (is_finite(value) and value >= 0):
                raise SpecError(f"expected a number of seconds, found {value}", field=field)
