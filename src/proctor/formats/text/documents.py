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
    if _is_too_large(text, ending, reading):
        return None
    if ending.endswith((".yaml", ".yml")) or (not ending.endswith(".json") and not text.lstrip("\ufeff \t\r\n").startswith(("{", "["))):
        from proctor.formats.text.yaml12 import read_yaml  # most runs need only one of the two readers

        return read_yaml(text, reading)
    from proctor.formats.text.json_text import read_json  # most runs need only one of the two readers

    if ending.endswith(".json"):
        return read_json(text, reading)
    return _parse_either(text, reading)


def _is_too_large(text: str, ending: str, reading: Reading) -> bool:
    is_json = ending.endswith(".json") or (
        not ending.endswith((".yaml", ".yml")) and text[:64].lstrip("\ufeff \t\r\n").startswith(("{", "["))
    )
    most, kind = (MAX_JSON, "JSON") if is_json else (MAX_YAML, "YAML")
    if len(text) <= most:
        return False
    start = Located(value=None, line=1, column=1, path="$")
    reading.error(
        start,
        f"{len(text) / 2**20:.1f} million characters of {kind} are too many; the limit is {most // 2**20} million",
        hint=SPLIT if is_json else f"{SPLIT}, or write it as JSON",
        code="too_large",
    )
    return True


def _parse_either(text: str, reading: Reading) -> Located | None:
    from proctor.formats.text.json_text import read_json
    from proctor.formats.text.yaml12 import read_yaml

    # Each attempt collects its own problems, so that those of the rejected one are never shown.
    json_try, yaml_try = Reading(file=reading.file, text=text), Reading(file=reading.file, text=text)
    document = read_json(text, json_try)
    chosen = json_try
    # It passed the limit of JSON, which is the larger one.
    if json_try.has_errors_since(0) and len(text) <= MAX_YAML:
        from_yaml = read_yaml(text, yaml_try)
        if not yaml_try.has_errors_since(0):
            document, chosen = from_yaml, yaml_try
    reading.problems.extend(chosen.problems)
    return document
