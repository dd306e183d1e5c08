"""Determines whether a suite is JSON or YAML.

The file name decides if it can: `.json` is JSON, `.yaml` and `.yml` are YAML. Otherwise a text that begins with `{` or `[` is JSON if it
is valid JSON, YAML if it is only valid YAML, and if it is neither, the problems of JSON are reported. Everything else is YAML.
"""

from __future__ import annotations

from proctor.formats.text.located import SPLIT, Located, Reading

MAX_JSON = 8 * 1024 * 1024
"""The maximum number of characters of a JSON document: a few seconds of work and a few hundred megabytes of memory."""
MAX_YAML = 2 * 1024 * 1024
"""The same for YAML, which takes longer to read."""


def read_text(text: str, *, file: str | None, reading: Reading) -> Located | None:
    """Return the document in `text`; problems go to `reading`, and None is returned if it cannot be read at all."""
    ending = (file or "").lower()
    is_named_json, is_named_yaml = ending.endswith(".json"), ending.endswith((".yaml", ".yml"))
    is_json = is_named_json or (not is_named_yaml and text.lstrip("\ufeff \t\r\n").startswith(("{", "[")))
    most, kind = (MAX_JSON, "JSON") if is_json else (MAX_YAML, "YAML")
    if len(text) > most:
        message = f"{len(text) / 2**20:.1f} million characters of {kind} are too many; the limit is {most // 2**20} million"
        hint = SPLIT if is_json else f"{SPLIT}, or write it as JSON"
        reading.error(Located(value=None, line=1, column=1, path="$"), message, hint=hint, code="too_large")
        return None
    # Most runs need only one of the two readers.
    if not is_json:
        from proctor.formats.text.yaml12 import read_yaml

        return read_yaml(text, reading)
    from proctor.formats.text.json_text import read_json

    # Each attempt collects its own problems, so that those of the rejected one are never shown.
    attempt = Reading(file=reading.file, text=text)
    document = read_json(text, attempt)
    if not is_named_json and attempt.has_errors_since(0) and len(text) <= MAX_YAML:
        from proctor.formats.text.yaml12 import read_yaml

        as_yaml = Reading(file=reading.file, text=text)
        from_yaml = read_yaml(text, as_yaml)
        if not as_yaml.has_errors_since(0):
            document, attempt = from_yaml, as_yaml
    reading.problems.extend(attempt.problems)
    return document
