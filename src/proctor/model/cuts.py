"""Texts that MCPLab truncates in its output: the first characters, then `...`.

Characters are counted as in JavaScript, in UTF-16 units, so that the length shows whether a text was cut: every text longer than the limit
was cut, and a cut text is exactly three characters longer than the limit.
"""

from typing import Final

ANSWER_LIMIT: Final = 4_000
"""The maximum length of an assistant's text in a trace."""
RESULT_LIMIT: Final = 12_000
"""The maximum length of a tool's result in a trace."""
MARK: Final = "..."


def count_units(text: str) -> int:
    """Return the length of a text in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def cut_text(text: str, limit: int) -> str:
    """Return a text as MCPLab writes it."""
    if count_units(text) <= limit:
        return text
    # Half of a character that needs two units is omitted, because UTF-8 cannot represent it.
    return text.encode("utf-16-le", "surrogatepass")[: 2 * limit].decode("utf-16-le", "ignore") + MARK


def text_before_cut(text: str, limit: int) -> str | None:
    """Return the remaining part of a text that was cut at this limit, or None if it is complete."""
    # A writer that omits half of a character keeps one unit less.
    if not text.endswith(MARK) or not limit - 1 <= count_units(text) - len(MARK) <= limit:
        return None
    remaining = text[: -len(MARK)]
    # Half a character is dropped; a decoder may have replaced it.
    return remaining[:-1] if remaining and ("\ud800" <= remaining[-1] <= "\udbff" or remaining[-1] == "\ufffd") else remaining
