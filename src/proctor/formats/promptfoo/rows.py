"""Test cases of promptfoo, from the columns of its CSV files: `__expected`, `__expected1`, `__description`, `__prefix`, `__suffix`, ...

Read as promptfoo 0.123 does (`testCaseFromCsvRow`): every other column is a variable, names of columns are trimmed, `{{name}}` in a cell is
the value of a variable, and the message is the prompt with the variables filled in, between `__prefix` and `__suffix`. The prompt is that
of `prompt` beside `from`, else the axis `prompt` of the matrix, else, where there is only one variable, that variable.
`promptfoo_claims.py` reads what stands under `__expected`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from proctor.expressions.text_form import write_text_form
from proctor.formats.promptfoo.claims import find_misspelt, read_claim, read_number
from proctor.formats.text.located import Located, Reading
from proctor.formats.text.placeholders import locate_value
from proctor.formats.text.row_types import convert_cell
from proctor.model.evidence import Json
from proctor.model.show import shorten, show

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
        """Reports what can be known from the columns alone."""
        self._place = place
        self._variables = tuple(column for column in columns if not column.startswith(SPECIAL))
        self._prompt: str | None = prompt.value if prompt is not None else None
        self._prompt_is_axis = prompt is None and PROMPT in axes
        self.used: tuple[str, ...] = axes
        """The axes that a row may use."""
        if self._prompt is None and not self._prompt_is_axis and len(self._variables) != 1:
            reading.error(
                place,
                f"nothing says what is sent: the file has the variables {', '.join(self._variables) or 'none'}",
                hint="add `prompt` beside `from`, with variables in double braces: prompt: 'Translate {{body}} into {{language}}'",
                code="missing_prompt",
            )
        self._expected = [column for column in columns if column.startswith("__expected")]
        for column in columns:
            self._check_column(column, reading)

    def _check_column(self, column: str, reading: Reading) -> None:
        hint = None
        if column == "__providerOutput":
            message, hint = "an answer that was recorded is no part of a case", "take it out, and check it as evidence: `proctor check`"
        elif column.startswith("__config") and (found := _CONFIG.match(column)) is None:
            message, hint = "no setting that is known", "expected __config:__expected:threshold, or __config:__expected2:threshold"
        elif column.startswith("__config") and (found := _CONFIG.match(column)) is not None and found[2] != "threshold":
            message = f"{found[2]!r} is no setting of a claim; expected threshold"
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
        render = _Renderer({**variables, **{axis: write_text_form(value) for axis, value in axes.items()}}, reading, self._place)
        case: dict[str, Json] = {"input": self._build_message(cells, variables, axes, render), "context": dict(variables)}
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
            # A test passes there from this mean on; the parts of a mean are no verdict of ours.
            case["scoring"] = {"mode": "weighted", "pass_at": threshold, "partial_above": threshold}
        elif cells.get("__threshold", "").strip():
            reading.error(self._place, f"__threshold: expected a number, found {show(cells['__threshold'], 60)}", code="bad_cell")
        return None if any(problem.level == "error" for problem in reading.problems) else locate_value(case, self._place, "$")

    def _build_message(self, cells: Mapping[str, str], variables: Mapping[str, str], axes: Mapping[str, Json], render: _Renderer) -> str:
        if self._prompt is not None:
            text = render.fill(self._prompt, "prompt")
        elif self._prompt_is_axis:
            text = render.fill(write_text_form(axes.get(PROMPT)), "prompt")
        else:
            text = next(iter(variables.values()), "")
        return cells.get("__prefix", "") + text + cells.get("__suffix", "")

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

    def _read_claims(self, cells: Mapping[str, str], metric: str, render: _Renderer, reading: Reading) -> list[Json]:
        claims: list[Json] = []
        thresholds = self._read_thresholds(cells, reading)
        # An empty cell is no claim, and the settings of claims count those that are there.
        written = [(column, cells[column].strip()) for column in self._expected if cells.get(column, "").strip()]
        for index, (column, cell) in enumerate(written):
            meant = find_misspelt(cell)
            if meant is not None:
                told = f"{column}: {show(cell, 60)} is no claim of a type, so the answer must be exactly this text"
                reading.warn(self._place, told, hint=f"did you mean {meant}:?", code="misspelt_claim")
            for claim in read_claim(cell, lambda text, column=column: render.fill(text, column), thresholds.get(index)):
                if metric:
                    claim["axis"] = metric
                if "unsupported" in claim:
                    # A mean over other claims must not carry it over a threshold.
                    claim["required"] = True
                    claim["label"] = shorten(cell, 80)
                    told = f"{column}: {claim['unsupported']['reason']}; the case fails by it"
                    reading.warn(self._place, told, code="unsupported_assertion")
                claims.append(claim)
        return claims

    def _read_thresholds(self, cells: Mapping[str, str], reading: Reading) -> dict[int, float]:
        found: dict[int, float] = {}
        for column, cell in cells.items():
            named = _CONFIG.match(column)
            if named is None:
                continue
            try:
                value = convert_cell(cell, "number")
            except ValueError as error:
                reading.error(self._place, f"column {column!r}: {error}", code="bad_cell")
                continue
            if value is None:
                reading.error(self._place, f"column {column!r}: expected a number, found an empty cell", code="bad_cell")
            else:
                found[int(named[1]) - 1 if named[1] else 0] = float(value)
        return found


class _Renderer:
    """Fills `{{name}}`; what else the template language of promptfoo can do is refused."""

    def __init__(self, variables: Mapping[str, str], reading: Reading, place: Located) -> None:
        self._variables, self._reading, self._place = variables, reading, place

    def fill(self, text: str, what: str) -> str:
        """Return the text with every reference replaced; a problem for one that names no variable."""
        if "{{" not in text and "{%" not in text and "{#" not in text:
            return text

        def replace(found: re.Match[str]) -> str:
            name = found[1].strip()
            if name in self._variables:
                return self._variables[name]
            self._reading.error_unknown(self._place, f"{what}: there is no variable {name!r}", name, self._variables, code="unknown_column")
            return ""

        filled = _REFERENCE.sub(replace, text)
        # Looked for in the template and not in what was filled in: a value may hold braces of its own.
        rest = _REFERENCE.sub("", text)
        if "{{" in rest or "{%" in rest or "{#" in rest:
            self._reading.error(
                self._place,
                f"{what}: only {{{{name}}}} is filled in; filters and blocks are not: {show(text, 80)}",
                code="unsupported_template",
            )
        return filled
