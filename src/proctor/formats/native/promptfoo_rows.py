"""Test cases of promptfoo, from the columns of its CSV files: `__expected`, `__expected1`, `__description`, `__prefix`, `__suffix`, ...

Read as promptfoo 0.123 does (`testCaseFromCsvRow`): every other column is a variable, names of columns are trimmed, `{{name}}` in a cell is
the value of a variable, and the message is the prompt with the variables filled in, between `__prefix` and `__suffix`. The prompt is that
of `prompt` next to `from`, else the axis `prompt` of the matrix, else, if there is only one variable, that variable.
`__expected` is read as claims.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from proctor.errors import SpecError
from proctor.expressions.text_form import write_text_form
from proctor.formats.text.foreign_names import find_counterpart
from proctor.formats.text.located import Located, Reading, locate_value
from proctor.formats.text.row_shapes import NUMBER, convert_cell
from proctor.model.evidence import Json
from proctor.model.show import shorten, show
from proctor.patterns.engine import compile_pattern

# --- claims in a promptfoo cell `__expected`, as our own

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
_NO_THRESHOLD = 0.75
"""promptfoo's default for a threshold that is missing or 0."""
_WITH_VALUE = ("contains", "contains-all", "contains-any", "icontains", "icontains-all", "icontains-any", "starts-with", "regex", "similar")
_PREFIX = re.compile(r"(?:not-)?([A-Za-z][A-Za-z-]{3,40})(?:\(\d+(?:\.\d+)?\))?:")
_CODE = ("javascript", "python", "ruby", "webhook")
# The pattern includes the end of the cell: otherwise `contains` would match in `contains-all`.
_CLAIM = re.compile(rf"(not-)?({'|'.join(TYPES)})(?:\((\d+(?:\.\d+)?)\))?(?::([\s\S]*))?\Z")
_CODE_FILE = re.compile(r"file://.*\.(?:c?m?[jt]sx?|py)(?::|\Z)", re.DOTALL)
_SPECIAL_CHARACTER = re.compile(r"[\\^$.*+?()\[\]{}|/]")


def read_number(text: str) -> float | None:
    """Return a whole cell as a number; None if it is not one."""
    digits = text.strip()
    return float(digits) if NUMBER.match(digits) and len(digits) < 300 else None


def read_claim(cell: str, fill: Fill, threshold: float | None = None) -> list[Claim]:
    """Return the claims of a cell, in native form.

    `fill` inserts the variables after the cell was parsed, so that a value never changes the type of a claim. `threshold` is that of a
    `__config` column.
    """
    for prefix in ("javascript:", "fn:", "eval:", "python:"):
        if cell.startswith(prefix):
            return [_refuse(f"{prefix[:-1]}: code in a file of data is not run")]
    if _CODE_FILE.match(cell):
        return [_refuse("code in a file is not run on the word of a file of data")]
    for prefix in ("grade:", "llm-rubric:"):
        if cell.startswith(prefix):
            return [_make_judged(fill(cell[len(prefix) :]), threshold)]
    match = _CLAIM.match(cell)
    if match is None:
        return [{"response_equals": {"text": fill(cell), "ignore_case": False}}]
    kind, value = match[2], (match[4] or "").strip()
    own = read_number(match[3]) if match[3] is not None else None
    limit = threshold if threshold is not None else own
    if kind in _CODE:
        return [_refuse(f"{kind}: code in a file of data is not run")]
    try:
        values = [fill(part) for part in split_values(value)] if kind.endswith(("contains-all", "contains-any")) else [fill(value)]
    except ValueError as error:
        return [_refuse(f"{kind}: {error}")]
    claims = _make_claims(kind, values, limit, wanted=not match[1])
    return [_refuse(_describe_refusal(match[1] or "", kind, value))] if claims is None else claims


def find_misspelt(cell: str) -> str | None:
    """Return the type that a cell probably misspells, as in `contians: shipped`; None for plain text."""
    match = _PREFIX.match(cell)
    if match is None or _CLAIM.match(cell) is not None:
        return None
    from difflib import get_close_matches  # only a cell that looks like a claim needs it

    # A higher similarity than words of a sentence have by chance.
    nearest = get_close_matches(match[1].lower(), TYPES, n=1, cutoff=0.85)
    return nearest[0] if nearest else None


def _describe_refusal(negation: str, kind: str, value: str) -> str:
    """Return why a type is rejected, with an alternative if there is one."""
    message = f"promptfoo's {negation}{kind}"
    if kind == "latency" and not negation:
        return f"{message} needs its bound in brackets: latency({value if read_number(value) else 2000})"
    other = find_counterpart(kind)
    if not negation and kind in _WITH_VALUE and not value:
        return f"{message} needs a value: {kind}:VALUE"
    if other is None:
        return f"{message} has no counterpart"
    return f"{message} is not supported in a cell; write a case of a suite with `{other}`"


def _refuse(reason: str) -> Claim:
    return {"unsupported": {"reason": reason}}


def _make_judged(criteria: str, threshold: float | None) -> Claim:
    if not criteria.strip():
        return _refuse("a rubric without words")
    spec: dict[str, Json] = {"criteria": criteria.strip(), "show_prompt": True}
    if threshold is not None:
        spec["threshold"] = threshold
    return {"judged": spec}


def _make_claims(kind: str, values: list[str], threshold: float | None, *, wanted: bool) -> list[Claim] | None:
    """Return the claims for a type, or unless `wanted` for its negation; None if there is no counterpart."""
    folded = kind.startswith("icontains")
    value = values[0] if values else ""
    contains = "response_contains" if wanted else "response_not_contains"
    # All of several texts, or none of them.
    each = [{contains: {"text": part, "ignore_case": folded}} for part in values]
    match kind:
        case "equals" if wanted:
            return [{"response_equals": {"text": value, "ignore_case": False}}]
        case "equals":
            return [_make_match(f"^{escape_pattern(value)}$", wanted=False)]
        case "contains" | "icontains" if value:
            return each[:1]
        case "contains-all" | "icontains-all" if wanted and all(values) and values:
            return each
        case "contains-any" | "icontains-any" if all(values) and values:
            pattern = "|".join(escape_pattern(part) for part in values)
            return [{"response_matches": {"pattern": pattern, **({"flags": "i"} if folded else {})}}] if wanted else each
        case "starts-with" if value and wanted:
            return [{"response_starts_with": {"text": value, "ignore_case": False}}]
        case "starts-with" if value:
            return [_make_match(f"^{escape_pattern(value)}", wanted=False)]
        case "regex" if value:
            return [_make_match(value, wanted=wanted)]
        case _ if not wanted:
            return None
        case "is-json":
            if not value:
                return [{"json_schema": {"schema": True}}]
            try:
                schema = convert_cell(value, "json")
            except ValueError as error:
                return [_refuse(f"is-json: {error}")]
            return [{"json_schema": {"schema": schema}}] if isinstance(schema, (dict, bool)) else None
        case "llm-rubric" | "model-graded-closedqa":
            return [_make_judged(value, threshold)]
        case "factuality" | "model-graded-factuality" | "similar" if value:
            # promptfoo measures similarity by embeddings; here a judge compares and decides yes or no.
            claim = "The answer says the same as the reference answer." if kind == "similar" else "The answer agrees with the reference."
            return [{"judged": {"criteria": claim, "reference": value, "show_prompt": True}}]
        case "latency" if threshold is not None and threshold > 0:
            return [{"responded_within": threshold}]
        case "levenshtein":
            # A distance in characters, not a share of the text; in promptfoo a bound that is missing or 0 is 0.75, which allows no edit.
            return [{"similar_to": {"text": [value], "most_edits": int(threshold or 0)}}]
        case "cost":
            # In promptfoo, providers report cost in dollars.
            return [{"cost_within": {"most": threshold or _NO_THRESHOLD, "currency": "USD"}}]
        case _:
            return None


def _make_match(pattern: str, *, wanted: bool) -> Claim:
    try:
        compile_pattern(pattern)
    except SpecError as error:
        # In promptfoo it fails the test at run time, not the file when it is read.
        return _refuse(f"a regular expression that cannot be read: {error.message}")
    return {"response_matches": {"pattern": pattern} if wanted else {"pattern": pattern, "should_match": False}}


def split_values(text: str) -> list[str]:
    """Return the parts of a list: separated by commas, quoted if they contain one; raises `ValueError` for unbalanced quotes."""
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
                raise ValueError("expected a comma after a closing quote")
        else:
            end = text.find(",", at)
            end = len(text) if end < 0 else end
            part, at = text[at:end].strip(), end
        parts.append(part)


def _read_quoted(text: str, at: int) -> tuple[str, int]:
    """Return a part and its end; a quote inside is doubled or escaped by a backslash."""
    characters: list[str] = []
    while at < len(text):
        if text[at : at + 2] in ('""', '\\"', "\\\\"):
            characters.append(text[at + 1])
            at += 2
        elif text[at] == '"':
            return "".join(characters), at + 1
        else:
            characters.append(text[at])
            at += 1
    raise ValueError("a quote that is not closed")


def escape_pattern(text: str) -> str:
    """Return a pattern that matches exactly this text."""
    return _SPECIAL_CHARACTER.sub(lambda match: "\\" + match[0], text)


SPECIAL = ("__expected", "__prefix", "__suffix", "__description", "__metric", "__threshold", "__metadata", "__config", "__providerOutput")
_REFERENCE = re.compile(r"\{\{\s*([^{}|]+?)\s*\}\}")
_CONFIG = re.compile(r"__config:__expected([0-9]{0,6}):(\w+)\Z")
_COMMA = re.compile(r"(?<!\\),")
PROMPT = "prompt"


def is_promptfoo(columns: tuple[str, ...]) -> bool:
    """Return whether a file has columns of promptfoo."""
    return any(column.startswith(SPECIAL) for column in columns)


class PromptfooRows:
    """The rows of one file."""

    def __init__(self, columns: tuple[str, ...], prompt: Located | None, axes: tuple[str, ...], reading: Reading, place: Located) -> None:
        """Reports the problems that the columns alone show."""
        self._place = place
        self._variables = tuple(column for column in columns if not column.startswith(SPECIAL))
        self._prompt: str | None = prompt.value if prompt is not None else None
        self._prompt_is_axis = prompt is None and PROMPT in axes
        self.used: tuple[str, ...] = axes
        """The axes that a row may use."""
        if self._prompt is None and not self._prompt_is_axis and len(self._variables) != 1:
            message = f"no prompt: the file has the variables {', '.join(self._variables) or 'none'}"
            hint = "add `prompt` next to `from`, with variables in double braces: prompt: 'Translate {{body}} into {{language}}'"
            reading.error(place, message, hint=hint, code="missing_prompt")
        self._expected = [column for column in columns if column.startswith("__expected")]
        for column in columns:
            self._check_column(column, reading)

    def _check_column(self, column: str, reading: Reading) -> None:
        hint = None
        if column == "__providerOutput":
            message, hint = "an answer that was recorded is no part of a case", "take it out, and check it as evidence: `proctor check`"
        elif column.startswith("__config") and (match := _CONFIG.match(column)) is None:
            message, hint = "no setting that is known", "expected __config:__expected:threshold, or __config:__expected2:threshold"
        elif column.startswith("__config") and (match := _CONFIG.match(column)) is not None and match[2] != "threshold":
            message = f"{match[2]!r} is not a setting of a claim; expected threshold"
        elif column == "__metadata":
            message, hint = "it needs a key", "for example __metadata:category"
        elif column.startswith("_") and not column.startswith("__") and ("_" + column).startswith(SPECIAL):
            message, hint = "one underscore; promptfoo's own columns have two", f"rename it to {'_' + column!r}"
        else:
            return
        reading.error(self._place, f"column {column!r}: {message}", hint=hint, code="unsupported_column")

    def build_case(self, values: Mapping[str, Json], axes: Mapping[str, Json], reading: Reading) -> Located | None:
        """Return the native case of a row; None after a problem."""
        cells = {column: write_text_form(value) for column, value in values.items() if column not in axes}
        variables = {name: cells.get(name, "") for name in self._variables}
        known = {**variables, **{axis: write_text_form(value) for axis, value in axes.items()}}

        def render(text: str, what: str) -> str:
            return self._render(text, what, known, reading)

        if self._prompt is not None:
            text = render(self._prompt, "prompt")
        elif self._prompt_is_axis:
            text = render(write_text_form(axes.get(PROMPT)), "prompt")
        else:
            text = next(iter(variables.values()), "")
        case: dict[str, Json] = {"input": cells.get("__prefix", "") + text + cells.get("__suffix", ""), "context": dict(variables)}
        if cells.get("__description"):
            case["name"] = cells["__description"]
        tags = self._read_metadata(cells)
        metric = cells.get("__metric", "").strip()
        if metric:
            tags["metric"] = metric
        if tags:
            case["tags"] = tags
        claims = self._read_claims(cells, metric, render, reading)
        if claims:
            case["expect"] = claims
        threshold = read_number(cells.get("__threshold", ""))
        if threshold is not None:
            # In promptfoo a test passes from this mean on; parts of a mean are not a verdict here.
            case["scoring"] = {"mode": "weighted", "pass_at": threshold, "partial_above": threshold}
        elif cells.get("__threshold", "").strip():
            reading.error(self._place, f"__threshold: expected a number, found {show(cells['__threshold'], 60)}", code="bad_cell")
        return None if reading.has_errors_since(0) else locate_value(case, self._place, "$")

    @staticmethod
    def _read_metadata(cells: Mapping[str, str]) -> dict[str, Json]:
        tags: dict[str, Json] = {}
        for column, cell in cells.items():
            key = column.removeprefix("__metadata:")
            if key == column or not cell.strip():
                continue
            if key.endswith("[]"):
                tags[key[:-2]] = [part.strip().replace("\\,", ",") for part in _COMMA.split(cell)]
            else:
                tags[key] = cell
        return tags

    def _read_claims(self, cells: Mapping[str, str], metric: str, render: Callable[[str, str], str], reading: Reading) -> list[Json]:
        claims: list[Json] = []
        thresholds = self._read_thresholds(cells, reading)
        # An empty cell is not a claim, and claim settings count only non-empty cells.
        written = [(column, cells[column].strip()) for column in self._expected if cells.get(column, "").strip()]
        for index, (column, cell) in enumerate(written):
            intended = find_misspelt(cell)
            if intended is not None:
                message = f"{column}: {show(cell, 60)} has no known claim type, so the answer must be exactly this text"
                reading.warn(self._place, message, hint=f"did you mean {intended}:?", code="misspelt_claim")
            for claim in read_claim(cell, lambda text, column=column: render(text, column), thresholds.get(index)):
                if metric:
                    claim["axis"] = metric
                if "unsupported" in claim:
                    # A mean over other claims must not lift it over a threshold.
                    claim["required"] = True
                    claim["label"] = shorten(cell, 80)
                    message = f"{column}: {claim['unsupported']['reason']}; the case fails by it"
                    reading.warn(self._place, message, code="unsupported_assertion")
                claims.append(claim)
        return claims

    def _read_thresholds(self, cells: Mapping[str, str], reading: Reading) -> dict[int, float]:
        thresholds: dict[int, float] = {}
        for column, cell in cells.items():
            match = _CONFIG.match(column)
            if match is None:
                continue
            try:
                value = convert_cell(cell, "number")
            except ValueError as error:
                reading.error(self._place, f"column {column!r}: {error}", code="bad_cell")
                continue
            if value is None:
                reading.error(self._place, f"column {column!r}: expected a number, found an empty cell", code="bad_cell")
            else:
                thresholds[int(match[1]) - 1 if match[1] else 0] = float(value)
        return thresholds

    def _render(self, text: str, what: str, variables: Mapping[str, str], reading: Reading) -> str:
        """Return the text with every `{{name}}` replaced; other features of promptfoo's template language are rejected."""
        if "{{" not in text and "{%" not in text and "{#" not in text:
            return text

        def replace(match: re.Match[str]) -> str:
            name = match[1].strip()
            if name not in variables:
                reading.error_unknown(self._place, f"{what}: there is no variable {name!r}", name, variables, code="unknown_column")
            return variables.get(name, "")

        filled = _REFERENCE.sub(replace, text)
        # Searched in the template, not in the result: a value may contain braces.
        rest = _REFERENCE.sub("", text)
        if "{{" in rest or "{%" in rest or "{#" in rest:
            message = f"{what}: only {{{{name}}}} is filled in; filters and blocks are not: {show(text, 80)}"
            reading.error(self._place, message, code="unsupported_template")
        return filled
