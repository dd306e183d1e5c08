"""Texts that MCPLab cuts when it writes them down: the first so many characters, then `...`.

Characters are counted as JavaScript does, in UTF-16 units, so that its length alone shows whether a text was cut: every text that
is longer than the limit was cut, and what comes out of a cut is exactly three characters longer than the limit.
"""

from typing import Final

ANSWER_LIMIT: Final = 4_000
"""How much of an assistant's text a trace keeps."""
RESULT_LIMIT: Final = 12_000
"""How much of a tool's result a trace keeps."""
MARK: Final = "..."


def count_units(text: str) -> int:
    """Return the length of a text in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def cut_text(text: str, limit: int) -> str:
    """Return a text as MCPLab writes it down."""
    if count_units(text) <= limit:
        return text
    # Half of a character that needs two units is left out: it could not be written as UTF-8.
    return text.encode("utf-16-le", "surrogatepass")[: 2 * limit].decode("utf-16-le", "ignore") + MARK


def text_before_cut(text: str, limit: int) -> str | None:
    """Return the rest of a text that was cut at this limit, or None if it is whole."""
    # A writer that leaves out half of a character keeps one unit less.
    if not text.endswith(MARK) or not limit - 1 <= count_units(text) - len(MARK) <= limit:
        return None
    before = text[: -len(MARK)]
    # Half a character is dropped; a decoder may have replaced it.
    return before[:-1] if before and ("\ud800" <= before[-1] <= "\udbff" or before[-1] == "\ufffd") else before
