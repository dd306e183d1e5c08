"""The table of limits on the safety page: words by hand, numbers from the code."""

from __future__ import annotations

import importlib

TOO_MUCH = "`error`, code `too_much_work`"
LIMITS: tuple[tuple[str, str, str, str], ...] = (
    ("a suite file", "proctor.sources.texts", "MAX_SUITE_BYTES", "input error"),
    ("characters of a suite in JSON", "proctor.formats.text.documents", "MAX_JSON", "input error"),
    ("characters of a suite in YAML", "proctor.formats.text.documents", "MAX_YAML", "input error"),
    ("values of a suite, keys of YAML counted", "proctor.formats.text.located", "MAX_VALUES", "input error with the position"),
    ("repeats of a case", "proctor.model.case", "MOST_REPEATS", "problem of the suite, or input error"),
    ("attempts one run may plan", "proctor.runner.limits", "MOST_ATTEMPTS", "input error"),
    ("attempts one run may have under way", "proctor.runner.limits", "MOST_AT_ONCE", "input error"),
    ("nesting of a suite in JSON", "proctor.formats.text.json_text", "MAX_DEPTH", "input error with the position"),
    ("nesting of a suite in YAML", "proctor.formats.text.yaml12", "MAX_DEPTH", "input error with the position"),
    (
        "values a YAML document may unfold to through aliases",
        "proctor.formats.text.yaml12",
        "MAX_EXPANDED",
        "input error with the position",
    ),
    ("one line of a JSONL file", "proctor.sources.records", "MAX_LINE_BYTES", "`error` for that record, code `line_too_long`"),
    ("one evidence document", "proctor.sources.records", "MAX_DOCUMENT_BYTES", "`error` for that record, code `too_large`"),
    ("one file in the folder form of evidence", "proctor.sources.state_folder", "MAX_FILE_BYTES", "`error`, code `too_large`"),
    ("files in one part of such a folder", "proctor.sources.state_folder", "MAX_FILES", "`error`, code `too_large`"),
    ("nesting of evidence", "proctor.evidence.values.json_bytes", "MAX_DEPTH", "`error` for that record"),
    ("characters of a regular expression", "proctor.patterns.engine", "LONGEST_PATTERN", "problem of the suite"),
    ("characters a regular expression is searched in", "proctor.patterns.engine", "LONGEST_TEXT", "`error`, code `regex_limit`"),
    ("CPU seconds of one search", "proctor.patterns.script_engine", "SECONDS", "`error`, code `regex_timeout`"),
    ("steps that the uninterruptible regex engine may need", "proctor.patterns.engine", "BUDGET", "the interruptible engine is used"),
    ("characters of a JSONPath", "proctor.paths.parser", "LONGEST_PATH", "problem of the suite"),
    ("steps of one JSONPath over one document", "proctor.paths.json_path", "MOST_STEPS", "`error`, code `path_limit`"),
    ("characters of an expression", "proctor.expressions.lexer", "LONGEST", "problem of the suite"),
    ("characters an expression may make or read", "proctor.expressions.expression", "MOST_TEXT", "`error`"),
    ("nesting of an expected value", "proctor.matchers.lists", "DEEPEST", "problem of the suite"),
    ("steps of one assertion on one evidence, where its cost is a product of both", "proctor.work", "MOST_STEPS", TOO_MUCH),
    ("steps of comparing one value with a list, variants or matchers", "proctor.matchers.lists", "MOST_WORK", TOO_MUCH),
    ("comparisons while pairing expected with actual calls", "proctor.matchers.calls", "MOST_COMPARISONS", TOO_MUCH),
    (
        "steps that one search by the interruptible regex engine counts",
        "proctor.patterns.engine",
        "SLOW_SEARCH",
        "it is one of the steps above",
    ),
    ("work of a JSON Schema over one value", "proctor.checks.answer.json_schema", "MOST_WORK", "`error`, code `schema_limit`"),
    (
        "CPU seconds of one case on one record, on the service",
        "proctor.service.decisions.trace_verdicts",
        "CASE_S",
        "`error`, code `time_limit`",
    ),
    (
        "CPU seconds of all cases on one record, on the service",
        "proctor.service.decisions.trace_verdicts",
        "TRACE_S",
        "`error`, code `time_limit`",
    ),
    (
        "CPU seconds of reading one record, on the service",
        "proctor.service.decisions.trace_verdicts",
        "READ_S",
        "`error`, code `time_limit`",
    ),
    (
        "CPU seconds of one request, on the service",
        "proctor.service.decisions.pool",
        "REQUEST_S",
        "`error`, code `time_limit`, for the rest",
    ),
    ("memory of deciding one record, on the service", "proctor.service.decisions.pool", "MEMORY_BYTES", "`error`, code `memory_limit`"),
    (
        "memory of deciding one trace, on the service",
        "proctor.service.decisions.trace_process",
        "MEMORY_BYTES",
        "`error`, code `memory_limit`",
    ),
    ("requests of one tenant that wait to be decided", "proctor.service.fair_queue", "MOST_WAITING", "503 with Retry-After"),
    ("entries of a FHIR bundle sent to a simulated system", "proctor.simulators.fhir.bundles", "MOST_ENTRIES", "400"),
    ("searches in such a bundle", "proctor.simulators.fhir.bundles", "MOST_SEARCHES", "400"),
    ("parameters of a FHIR search in a simulated system", "proctor.simulators.fhir.searching", "MOST_PAIRS", "400"),
    ("values in such a search", "proctor.simulators.fhir.searching", "MOST_VALUES", "400"),
    ("sort keys of such a search", "proctor.simulators.fhir.searching", "MOST_SORT_KEYS", "400"),
    ("filters of a list of simulated records", "proctor.simulators.kinds.records", "MOST_FILTERS", "400"),
    ("sort keys of such a list", "proctor.simulators.kinds.records", "MOST_SORT_KEYS", "400"),
    ("CPU seconds of reading one PDF of a simulated fax", "proctor.simulators.pdf_process", "CPU_S", "the fax has no text"),
    ("memory of reading one PDF", "proctor.simulators.pdf_process", "MEMORY_BYTES", "the fax has no text"),
    ("seconds of one request to a simulated system, on the service", "proctor.service.verification.sandboxes.requests", "ANSWER_S", "400"),
    ("unmatched records listed in a result", "proctor.actions.checking.check_stream", "MOST_UNMATCHED", "the rest is counted"),
    ("problems `validate` prints", "proctor.actions.checking.validate", "MOST_PROBLEMS", "the rest is left out, with a note"),
    ("characters of a Markdown report", "proctor.report.document.markdown", "MOST_CHARACTERS", "further details are left out, with a note"),
)
"""What is limited, where the number is defined, and what happens beyond it."""


def limits_table() -> str:
    """The table in Markdown."""
    lines = ["| limit on | value | beyond it |", "|---|---|---|"]
    for what, module, name, beyond in LIMITS:
        lines.append(f"| {what} | {_shown(getattr(importlib.import_module(module), name), name)} | {beyond} |")
    return "\n".join(lines)


def _shown(value: float, name: str) -> str:
    return f"{int(value) // 2**20} MB" if name.endswith("_BYTES") else f"{value:,}".replace(",", " ")
