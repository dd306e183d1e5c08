"""The scoring contract of MCPJam: definitions of scorers, their results, and the verdict on an iteration.

* A definition describes how a scorer grades. Its hash covers everything that changes the grading, and not the label.
* A scorer only reports what it saw (`scored`, `skipped`, `not_applicable`); the threshold decides here whether that passes. A value
  outside 0 to 1 is an error and is never clamped, as is a scorer that raises or takes too long.
* An iteration passes if every row belongs to a definition (by hash), every gating definition has a row, every scored gating row
  passed, and no gating row is an error or was skipped, unless its definition ignores that. `not_applicable` never counts.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, cast, get_args

import msgspec

from proctor.evals.agents.camel_case import to_camel
from proctor.model.evidence import Json
from proctor.model.json_values import is_number, quote_javascript_text, write_javascript_number
from proctor.model.show import kind_of, show, suggest_one
from proctor.model.typed import convert_to

DEEPEST: Final = 200
"""The maximum depth of lists and objects; deeper or circular values are rejected."""


def canonical_json(value: object) -> str:
    """Return the canonical JSON of a value. Raises `ValueError` or `TypeError` if it has none."""
    return _write_value(value, 0)


def canonical_digest(value: object) -> str:
    """Return the SHA-256 of the canonical JSON, in hexadecimal."""
    return text_digest(canonical_json(value))


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    # Half of a surrogate pair has no UTF-8, but such a text also needs a digest.
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def _write_value(value: object, depth: int) -> str:
    if depth > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} levels deep")
    # Before the test for whole numbers, because `bool` is a subclass of `int`.
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return quote_javascript_text(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"not a number JSON can hold: {value}")
        return write_javascript_number(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[Any, object]", value)
        for key in members:
            if not isinstance(key, str):
                raise TypeError(f"the name of a member must be text, found {kind_of(key)}")
        return (
            "{"
            + ",".join(f"{quote_javascript_text(key)}:{_write_value(members[key], depth + 1)}" for key in sorted(members, key=_sort_key))
            + "}"
        )
    if isinstance(value, (list, tuple)):
        items = cast("list[object]", value)
        return "[" + ",".join(_write_value(item, depth + 1) for item in items) + "]"
    raise TypeError(f"expected plain values, lists and objects, found {kind_of(value)}")


def _sort_key(key: str) -> bytes:
    """Return the key by which JavaScript's `sort` orders: a character beyond the basic plane counts as its two surrogates."""
    return key.encode("utf-16-be", "surrogatepass")


Role = Literal["gating", "advisory"]
Policy = Literal["fail", "ignore"]
Status = Literal["scored", "error", "skipped", "not_applicable"]
Integrity = Literal["valid", "invalid"]

LONGEST_ID: Final = 128
LONGEST_RATIONALE: Final = 2000
LONGEST_ERROR: Final = 500
MOST_EVIDENCE: Final = 20
LONGEST_EVIDENCE: Final = 300


class ScoreDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one scorer grades. Raises `ValueError` for invalid values."""

    scorer_id: str
    id_source: Literal["explicit", "generated"] = "explicit"
    """`generated`: the id depends on the place in the list, so no gate may name it."""
    scorer_version: str = "1"
    implementation_hash: str
    label: str | None = None
    deterministic: bool = True
    pass_threshold: float = 1.0
    role: Role = "gating"
    on_error: Policy | None = None
    """The effect of an error on a gating scorer; by default `fail` for gating and `ignore` for advisory scorers."""
    on_skipped: Policy | None = None
    model: str | None = None
    scope: dict[str, Json] | None = None

    def __post_init__(self) -> None:
        if not self.scorer_id.strip() or len(self.scorer_id) > LONGEST_ID:
            raise ValueError(f"id: expected text of 1 to {LONGEST_ID} characters, found {show(self.scorer_id)}")
        if not is_fraction(self.pass_threshold):
            raise ValueError(f"threshold: expected a number from 0 to 1, found {show(self.pass_threshold)}")
        _require_one_of("role", self.role, get_args(Role))
        for name in ("on_error", "on_skipped"):
            if getattr(self, name) is None:
                msgspec.structs.force_setattr(self, name, "fail" if self.role == "gating" else "ignore")
            _require_one_of(name, getattr(self, name), get_args(Policy))

    def graded_by(self) -> dict[str, Json]:
        """Return what the hash covers, in the original's spelling."""
        fields = msgspec.structs.asdict(self)
        return {to_camel(name): value for name, value in fields.items() if value is not None and name != "label"}


def definition_hash(definition: ScoreDefinition) -> str:
    """Return the hash by which rows are joined to their definition."""
    return canonical_digest(definition.graded_by())


def evaluation_config_hash(definitions: Iterable[ScoreDefinition]) -> str:
    """Return one hash for a set of definitions, in any order."""
    return text_digest("[" + ",".join(sorted((canonical_json(definition.graded_by()) for definition in definitions), key=_sort_key)) + "]")


def suite_config_hash(hashes: Iterable[str]) -> str:
    """Return one hash for the tests of a suite; two tests that are graded alike count twice."""
    return canonical_digest(sorted(hashes))


class EvaluationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The definitions that graded a run, in the order they were written, and their hash."""

    hash: str
    definitions: tuple[ScoreDefinition, ...]

    @classmethod
    def of(cls, definitions: Iterable[ScoreDefinition]) -> EvaluationConfig:
        """Return the definitions with their hash. Raises `ValueError` for a duplicate id."""
        listed = tuple(definitions)
        seen: set[str] = set()
        for definition in listed:
            if definition.scorer_id in seen:
                raise ValueError(f"two scorers have the id {definition.scorer_id!r}")
            seen.add(definition.scorer_id)
        return cls(hash=evaluation_config_hash(listed), definitions=listed)


class ScoreOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a scorer. Made by `scored`, `skipped` and `not_applicable`."""

    kind: Status
    value: object = None
    rationale: str = ""
    evidence: tuple[str, ...] = ()
    model: str | None = None
    prompt_hash: str | None = None
    scope: dict[str, Json] | None = None
    details: dict[str, Json] = {}


def scored(
    value: float,
    rationale: str = "",
    *,
    evidence: Sequence[str] = (),
    model: str | None = None,
    prompt_hash: str | None = None,
    scope: Mapping[str, Json] | None = None,
    details: Mapping[str, Json] | None = None,
) -> ScoreOutcome:
    """Return a score from 0 to 1."""
    return ScoreOutcome(
        kind="scored",
        value=value,
        rationale=rationale,
        evidence=tuple(evidence),
        model=model,
        prompt_hash=prompt_hash,
        scope=None if scope is None else dict(scope),
        details=dict(details or {}),
    )


def skipped(rationale: str = "") -> ScoreOutcome:
    """Return a skipped outcome; a gating scorer then fails unless configured to ignore it."""
    return ScoreOutcome(kind="skipped", rationale=rationale)


def not_applicable(rationale: str = "") -> ScoreOutcome:
    """Return the outcome that there is nothing to score; it never counts."""
    return ScoreOutcome(kind="not_applicable", rationale=rationale)


def make_error_outcome(error: str, *, model: str | None = None, details: Mapping[str, Json] | None = None) -> ScoreOutcome:
    """Return the outcome of a failed scorer."""
    return ScoreOutcome(kind="error", rationale=error, model=model, details=dict(details or {}))


def read_outcome(answer: object) -> ScoreOutcome:
    """Read the return value of a user's scorer: an outcome, a mapping of the same shape, a number, or a boolean."""
    if isinstance(answer, ScoreOutcome):
        return answer
    # A plain boolean is valid here; `make_row` rejects it as a value.
    if isinstance(answer, (bool, int, float)):
        return ScoreOutcome(kind="scored", value=float(answer) if isinstance(answer, bool) else answer)
    if not isinstance(answer, Mapping):
        raise TypeError(
            f"a scorer returns scored(...), skipped(...), not_applicable(...), a number or true or false; found {kind_of(answer)}"
        )
    members = cast("Mapping[str, object]", answer)
    fields = {"prompt_hash" if key == "promptHash" else key: value for key, value in members.items()}
    for key in fields:
        if key not in ScoreOutcome.__struct_fields__:
            raise TypeError(f"an outcome has no member {key!r}" + suggest_one(str(key), ScoreOutcome.__struct_fields__))
    try:
        return convert_to(fields, ScoreOutcome)
    except msgspec.ValidationError as error:
        raise TypeError(f"an outcome that cannot be used: {error}") from None


class ScoreResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one scorer in one iteration. `value` and `passed` are set only when it was scored, `error` only with an error."""

    scorer_id: str
    scorer_version: str
    definition_hash: str
    status: Status
    value: float | None = None
    pass_threshold: float
    passed: bool | None = None
    rationale: str | None = None
    evidence: tuple[str, ...] = ()
    deterministic: bool
    model: str | None = None
    prompt_hash: str | None = None
    error: str | None = None
    scope: dict[str, Json] | None = None
    details: dict[str, Json] = {}
    """Of a judge: who judged and how, with the replies, tokens and cost."""


def make_row(definition: ScoreDefinition, outcome: ScoreOutcome) -> ScoreResult:
    """Return the row of an outcome."""
    fault = outcome.rationale if outcome.kind == "error" else _explain_unusable(outcome.value) if outcome.kind == "scored" else None
    status: Status = "error" if fault is not None else outcome.kind
    value = float(cast(float, outcome.value)) if status == "scored" else None
    return ScoreResult(
        scorer_id=definition.scorer_id,
        scorer_version=definition.scorer_version,
        definition_hash=definition_hash(definition),
        status=status,
        value=value,
        pass_threshold=definition.pass_threshold,
        passed=None if value is None else value >= definition.pass_threshold,
        rationale=_cut_end(outcome.rationale, LONGEST_RATIONALE) or None if status != "error" else None,
        evidence=tuple(_cut_end(text, LONGEST_EVIDENCE) for text in outcome.evidence[:MOST_EVIDENCE]) if status == "scored" else (),
        deterministic=definition.deterministic,
        model=outcome.model or definition.model,
        prompt_hash=outcome.prompt_hash,
        error=None if fault is None else _cut_end(fault.strip() or "unknown error", LONGEST_ERROR),
        scope=outcome.scope or definition.scope,
        details=outcome.details,
    )


def _explain_unusable(value: object) -> str | None:
    if not is_number(value):
        return f"the scorer returned {show(value)} where a number from 0 to 1 is expected"
    return None if is_fraction(value) else f"the scorer returned {show(value)}, which is not from 0 to 1"


def row_holds(definition: ScoreDefinition, row: ScoreResult) -> bool:
    """Return whether a row passes its gate. The threshold is that of the definition, not of the row."""
    if definition.role == "advisory" or row.status == "not_applicable":
        return True
    if row.status == "scored":
        return row.passed is True and row.value is not None and row.value >= definition.pass_threshold
    return (definition.on_error if row.status == "error" else definition.on_skipped) == "ignore"


def is_passed(rows: Iterable[ScoreResult], config: EvaluationConfig) -> bool:
    """Return whether an iteration passes: every row belongs to a definition, and every gating definition has rows that hold."""
    by_hash: dict[str, list[ScoreResult]] = {definition_hash(each): [] for each in config.definitions}
    for row in rows:
        if row.definition_hash not in by_hash:
            return False
        by_hash[row.definition_hash].append(row)
    return all(
        definition.role == "advisory" or (matching and all(row_holds(definition, row) for row in matching))
        for definition, matching in zip(config.definitions, by_hash.values(), strict=True)
    )


def score_integrity(rows: Iterable[ScoreResult], definitions: Iterable[ScoreDefinition]) -> Integrity:
    """Return whether rows and definitions match and every row is consistent."""
    by_hash = {definition_hash(definition): definition for definition in definitions}
    return "valid" if all(_is_sound(row, by_hash.get(row.definition_hash)) for row in rows) else "invalid"


def _is_sound(row: ScoreResult, definition: ScoreDefinition | None) -> bool:
    if definition is None or row.scorer_id != definition.scorer_id or row.pass_threshold != definition.pass_threshold:
        return False
    if row.status != "scored":
        return row.value is None and row.passed is None
    return row.value is not None and is_fraction(row.value) and row.passed is (row.value >= row.pass_threshold)


def is_fraction(value: float) -> bool:
    """Return whether a value is a number from 0 to 1."""
    # The value comes from callers, so its type is checked here.
    number: Any = value
    return is_number(number) and 0 <= number <= 1


def _require_one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}: expected {' or '.join(allowed)}, found {show(value)}")


def _cut_end(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
