"""What stands in a cell `__expected` of promptfoo, as claims of our own.

`[not-]type[(threshold)][:value]`, as promptfoo 0.123 reads it (`assertionFromString`); anything else is the exact answer. Code is never
run, and what has no counterpart becomes `unsupported`, which fails: nothing is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from proctor.errors import SpecError
from proctor.formats.text.foreign_names import find_counterpart
from proctor.model.evidence import Json
from proctor.patterns.engine import compile_pattern

Claim = dict[str, Json]
Fill = Callable[[str], str]

TYPES = (
    *("agent-rubric", "answer-relevance", "bleu", "classifier", "contains", "contains-all", "contains-any", "contains-html"),
    *("contains-json", "contains-sql", "contains-xml", "context-faithfulness", "context-recall", "context-relevance"),
    *("conversation-relevance", "cost", "equals", "factuality", "finish-reason", "g-eval", "gleu", "guardrails", "icontains"),
    *("icontains-all", "icontains-any", "is-html", "is-json", "is-refusal", "is-sql", "is-valid-function-call"),
    *("is-valid-openai-function-call", "is-valid-openai-tools-call", "is-xml", "javascript", "latency", "levenshtein", "llm-rubric"),
    *("pi", "meteor", "model-graded-closedqa", "model-graded-factuality", "moderation", "perplexity", "perplexity-score", "python"),
    *("regex", "rouge-n", "ruby", "similar", "similar:cosine", "similar:dot", "similar:euclidean", "starts-with", "tool-call-f1"),
    *("skill-used", "trajectory:goal-success", "trajectory:tool-args-match", "trajectory:step-count", "trajectory:tool-sequence"),
    *("trajectory:tool-used", "trace-error-spans", "trace-span-count", "trace-span-duration", "search-rubric", "webhook", "word-count"),
)
"""Every type of claim that promptfoo knows."""
_NO_THRESHOLD = 0.75
"""What promptfoo takes for a threshold that is left out, or 0."""
_WITH_VALUE = ("contains", "contains-all", "contains-any", "icontains", "icontains-all", "icontains-any", "starts-with", "regex", "similar")
_PREFIX = re.compile(r"(?:not-)?([A-Za-z][A-Za-z-]{3,40})(?:\(\d+(?:\.\d+)?\))?:")
_CODE = ("javascript", "python", "ruby", "webhook")
# The end of the cell belongs to the pattern: else `contains` would be taken out of `contains-all`.
_CLAIM = re.compile(rf"(not-)?({'|'.join(TYPES)})(?:\((\d+(?:\.\d+)?)\))?(?::([\s\S]*))?\Z")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?\Z")
_CODE_FILE = re.compile(r"file://.*\.(?:c?m?[jt]sx?|py)(?::|\Z)", re.DOTALL)
_SPECIAL_CHARACTER = re.compile(r"[\\^$.*+?()\[\]{}|/]")


def read_number(text: str) -> float | None:
    """Return a whole cell as a number; None where it is none."""
    found = text.strip()
    return float(found) if _NUMBER.match(found) and len(found) < 300 else None


def read_claim(cell: str, fill: Fill, threshold: float | None = None) -> list[Claim]:
    """Return the claims of a cell, in native form.

    `fill` puts in the variables, after the cell was taken apart: a value never makes a claim of another type. `threshold` is that of a
    `__config` column.
    """
    for prefix in ("javascript:", "fn:", "eval:", "python:"):
        if cell.startswith(prefix):
            return [_refuse(f"{prefix[:-1]}: code in a file of data is not run")]
    if _CODE_FILE.match(cell):
        return [_refuse("code in a file is not run on the word of a file of data")]
    for prefix in ("grade:", "llm-rubric:"):
        if cell.startswith(prefix):
            return [_judge(fill(cell[len(prefix) :]), threshold)]
    found = _CLAIM.match(cell)
    if found is None:
        return [{"response_equals": {"text": fill(cell), "ignore_case": False}}]
    kind, value = found[2], (found[4] or "").strip()
    own = read_number(found[3]) if found[3] is not None else None
    limit = threshold if threshold is not None else own
    if kind in _CODE:
        return [_refuse(f"{kind}: code in a file of data is not run")]
    try:
        values = [fill(part) for part in split_values(value)] if kind.endswith(("contains-all", "contains-any")) else [fill(value)]
    except ValueError as error:
        return [_refuse(f"{kind}: {error}")]
    made = _make_negated(kind, values) if found[1] else _make(kind, values, limit)
    return [_refuse(_describe_refusal(found[1] or "", kind, value))] if made is None else made


def find_misspelt(cell: str) -> str | None:
    """Return the type that a cell seems to mean and misspells, as in `contians: shipped`; None for plain text."""
    found = _PREFIX.match(cell)
    if found is None or _CLAIM.match(cell) is not None:
        return None
    from difflib import get_close_matches  # only a cell that looks like a claim needs it

    # Nearer than words of a sentence come by chance.
    close = get_close_matches(found[1].lower(), TYPES, n=1, cutoff=0.85)
    return close[0] if close else None


def _describe_refusal(negation: str, kind: str, value: str) -> str:
    """Return why a type is refused, and what to write instead where there is something."""
    told = f"promptfoo's {negation}{kind}"
    if kind == "latency" and not negation:
        return f"{told} needs its bound in brackets: latency({value if read_number(value) else 2000})"
    other = find_counterpart(kind)
    if not negation and kind in _WITH_VALUE and not value:
        return f"{told} needs a value: {kind}:VALUE"
    if other is None:
        return f"{told} has no counterpart"
    return f"{told} is not read out of a cell; a case in a suite says `{other}`"


def _refuse(reason: str) -> Claim:
    return {"unsupported": {"reason": reason}}


def _judge(criteria: str, threshold: float | None) -> Claim:
    if not criteria.strip():
        return _refuse("a rubric without words")
    spec: dict[str, Json] = {"criteria": criteria.strip(), "show_prompt": True}
    if threshold is not None:
        spec["threshold"] = threshold
    return {"judged": spec}


def _make(kind: str, values: list[str], threshold: float | None) -> list[Claim] | None:
    """Return the claims for a type; None where there is no counterpart."""
    folded = kind.startswith("icontains")
    value = values[0] if values else ""
    match kind:
        case "equals":
            return [{"response_equals": {"text": value, "ignore_case": False}}]
        case "contains" | "icontains" if value:
            return [{"response_contains": {"text": value, "ignore_case": folded}}]
        case "contains-all" | "icontains-all" if all(values) and values:
            return [{"response_contains": {"text": part, "ignore_case": folded}} for part in values]
        case "contains-any" | "icontains-any" if all(values) and values:
            pattern = "|".join(escape_pattern(part) for part in values)
            return [{"response_matches": {"pattern": pattern, **({"flags": "i"} if folded else {})}}]
        case "starts-with" if value:
            return [{"response_starts_with": {"text": value, "ignore_case": False}}]
        case "regex" if value:
            return [_match(value, wanted=True)]
        case "is-json":
            return _claim_json(value)
        case "llm-rubric" | "model-graded-closedqa":
            return [_judge(value, threshold)]
        case "factuality" | "model-graded-factuality" | "similar" if value:
            # Nearness of meaning is measured there by embeddings; here a judge compares, and says yes or no.
            claim = "The answer says the same as the reference answer." if kind == "similar" else "The answer agrees with the reference."
            return [{"judged": {"criteria": claim, "reference": value, "show_prompt": True}}]
        case "latency" if threshold is not None and threshold > 0:
            return [{"responded_within": threshold}]
        case "levenshtein":
            # A distance in characters, not a share of the text; there a bound that is left out, or 0, is 0.75, which no edit is below.
            return [{"similar_to": {"text": [value], "most_edits": int(threshold or 0)}}]
        case "cost":
            # What a provider tells there is in dollars.
            return [{"cost_within": {"most": threshold or _NO_THRESHOLD, "currency": "USD"}}]
        case _:
            return None


def _make_negated(kind: str, values: list[str]) -> list[Claim] | None:
    folded = kind.startswith("icontains")
    value = values[0] if values else ""
    match kind:
        case "equals":
            return [_match(f"^{escape_pattern(value)}$", wanted=False)]
        case "contains" | "icontains" if value:
            return [{"response_not_contains": {"text": value, "ignore_case": folded}}]
        case "contains-any" | "icontains-any" if all(values) and values:
            return [{"response_not_contains": {"text": part, "ignore_case": folded}} for part in values]
        case "starts-with" if value:
            return [_match(f"^{escape_pattern(value)}", wanted=False)]
        case "regex" if value:
            return [_match(value, wanted=False)]
        case _:
            return None


def _match(pattern: str, *, wanted: bool) -> Claim:
    try:
        compile_pattern(pattern)
    except SpecError as error:
        # There it fails the test when it is run, not the file when it is read.
        return _refuse(f"a regular expression that cannot be read: {error.message}")
    return {"response_matches": {"pattern": pattern} if wanted else {"pattern": pattern, "should_match": False}}


def _claim_json(value: str) -> list[Claim] | None:
    from proctor.formats.text.row_types import convert_cell  # only this type of claim has JSON in its cell

    if not value:
        return [{"json_schema": {"schema": True}}]
    try:
        schema = convert_cell(value, "json")
    except ValueError as error:
        return [_refuse(f"is-json: {error}")]
    return [{"json_schema": {"schema": schema}}] if isinstance(schema, (dict, bool)) else None


def split_values(text: str) -> list[str]:
    """Return the parts of a list: separated by commas, in quotes where they hold one; raises `ValueError` for quotes that do not fit."""
    parts: list[str] = []
    at = 0
    while True:
        while at < len(text) and (text[at].isspace() or text[at] == ","):
            at += 1
        if at >= len(text):
            return parts
        if text[at] == '"':
            part, at = _read_quoted(text, at + 1)
            while at < len(text) and text[at].isspace():
                at += 1
            if at < len(text) and text[at] != ",":
                raise ValueError("expected a comma behind a closing quote")
        else:
            end = text.find(",", at)
            end = len(text) if end < 0 else end
            part, at = text[at:end].strip(), end
        parts.append(part)


def _read_quoted(text: str, at: int) -> tuple[str, int]:
    """Return a part and where it ends; a quote inside is doubled or behind a backslash."""
    found: list[str] = []
    while at < len(text):
        if text[at : at + 2] in ('""', '\\"', "\\\\"):
            found.append(text[at + 1])
            at += 2
        elif text[at] == '"':
            return "".join(found), at + 1
        else:
            found.append(text[at])
            at += 1
    raise ValueError("a quote that is not closed")


def escape_pattern(text: str) -> str:
    """Return a pattern that matches exactly this text."""
    return _SPECIAL_CHARACTER.sub(lambda found: "\\" + found[0], text)
