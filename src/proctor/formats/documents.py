"""Which of the two text formats a suite is written in.

The name decides where it can: `.json` is JSON, `.yaml` and `.yml` are YAML. Otherwise a text that begins with `{` or `[` is JSON if
it reads as JSON, YAML if only that reads it, and its problems are those of JSON when neither does. Everything else is YAML.
"""

from __future__ import annotations

from proctor.formats.located import Located, Reading


def read_text(text: str, *, file: str | None, reading: Reading) -> Located | None:
    """The document in `text`; problems go to `reading`, and nothing is returned when it cannot be read at all."""
    ending = (file or "").lower()
    if ending.endswith((".yaml", ".yml")) or (not ending.endswith(".json") and not text.lstrip("\ufeff \t\r\n").startswith(("{", "["))):
        from proctor.formats.yaml12 import read_yaml  # of the two readers most runs need one

        return read_yaml(text, reading)
    from proctor.formats.json_text import read_json  # of the two readers most runs need one

    if ending.endswith(".json"):
        return read_json(text, reading)
    return _either(text, reading)


def _either(text: str, reading: Reading) -> Located | None:
    from proctor.formats.json_text import read_json
    from proctor.formats.yaml12 import read_yaml

    json_try, yaml_try = Reading(file=reading.file, text=text), Reading(file=reading.file, text=text)
    document = read_json(text, json_try)
    chosen = json_try
    if _failed(json_try):
        from_yaml = read_yaml(text, yaml_try)
        if not _failed(yaml_try):
            document, chosen = from_yaml, yaml_try
    reading.problems.extend(chosen.problems)
    return document


def _failed(reading: Reading) -> bool:
    return any(problem.level == "error" for problem in reading.problems)
