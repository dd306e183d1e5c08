"""Turns what an agent wrote into data: it cannot end its block, nor pass for anything but text to be judged.

Four defences, each sufficient alone:
1. The material is one line of JSON. A line break in it is two characters, so nothing in it can form a separate line.
2. It is between two marker lines. The marker is a digest of the whole request, the material included: it repeats when the request
   does (caches and recordings rely on that), and no text can contain its own digest. If it occurs nevertheless, another one is taken.
3. Whatever a model or its chat template may take for the end of a text (marker lines, code fences, template tokens, tags of the kind
   prompts are built of) is made harmless by look-alike characters, one for one: ‹ › for angle brackets, ⟦ for a bracket, ¦ for a bar,
   ‵ for a backtick, and so on. The judge knows this. Ordinary markup and lines such as `user: ...` are left alone.
4. What cannot be seen is removed: control characters, direction overrides, zero-width and tag characters, variation selectors, lone
   surrogates. Line separators become line breaks. A joined emoji falls into its parts by that, and a joiner inside a Persian or Indic word
   is lost: both remain readable, and text that only machines see does not remain at all.
"""

from __future__ import annotations

import re
from hashlib import sha256
from itertools import count

import msgspec

from proctor.model.evidence import Json

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""The subset that ASCII text can contain; a smaller set is searched in half the time."""
_LINE_BREAK = re.compile("[\x85\u2028\u2029]")
_WIDE = re.compile("[＜＞﹤﹥［｀]")
"""Wide forms of delimiters, which normalisation turns into the real ones."""

_TAGS = (
    r"s|bos|eos|pad|unk|system|assistant|user|human|developer|data|documents?|instructions?|prompt|context|untrusted\w*|material|subject|"
    r"think(?:ing)?|scratchpad|reasoning|final|verdict|results?|judge|transcript|conversation|message|"
    r"(?:start|end|begin)_of_\w+|im_\w+|tool\w*|function\w*|invoke|parameters?|antml\w*"
)
_BRACKETED = (
    r"inst|sys|system|system_prompt|available_tools|tool_calls?|tool_results?|tool_content|prefix|suffix|middle|assistant|user|human|"
    r"developer|data|end|begin|end[ _]of[ _]\w{1,20}|(?:end|begin)[ _]\w{1,20}"
)
# Every repetition is bounded or possessive, and a run is only entered at its start: time grows with the length of the text alone. Every
# alternative begins with a literal character, so that the search jumps from one such character to the next.
_RUN_END = r"(?=[ \t]{0,8}(?:begin|end|start|stop)\b)"
_DELIMITER = re.compile(
    rf"````*+|~~~~*+|>>>*+|\|>|｜>|<(?:<++|[|｜!]|(?=\s{{0,8}}/?\s{{0,8}}(?:{_TAGS})\b))"
    rf"|\[(?=\s{{0,8}}/?\s{{0,8}}(?:{_BRACKETED})\s{{0,8}}\]|\.\.\. ?\w)"
    rf"|-(?<!--)---*+{_RUN_END}|=(?<!==)===*+{_RUN_END}|\*(?<!\*\*)\*\*\**+{_RUN_END}|_(?<!__)___*+{_RUN_END}"
    r"|\#(?<!\#\#)\#\#*+(?=[ \t]{0,8}(?:instruction|response|system|assistant|user|human)s?[ \t]{0,8}:)",
    re.IGNORECASE,
)
_SIGNS = ("<", "[", "```", "~~~", ">>", "|>", "｜>", "---", "===", "***", "___", "##")
"""A text without any of these has no delimiter, which is faster to check than the expression above."""
_LOOK_ALIKES = str.maketrans("`~<>[|｜-=*_#＜＞﹤﹥［｀", "‵∼‹›⟦¦¦–꞊∗‿♯‹›‹›⟦‵")
"""None of them becomes its original under normalisation, which some tokenizers apply."""

_encoder = msgspec.json.Encoder()


def neutralise_text(text: str) -> str:
    """Return `text` without invisible characters, and with look-alikes for characters that could end the block."""
    if text.isascii():
        text = _CONTROL.sub("", text)
    else:
        text = _WIDE.sub(_replace_delimiter, _INVISIBLE.sub("", _LINE_BREAK.sub("\n", text)))
    if _has_sign(text):
        # After the removal: a removed character must not hide a delimiter.
        text = _DELIMITER.sub(_replace_delimiter, text)
    return text


def is_harmless(line: str) -> bool:
    """Return whether a line of JSON certainly needs no neutralising; false if uncertain."""
    # JSON writes most control characters as `\u0000`, so they do not occur in the line itself.
    if "\\u" in line or "\\b" in line or "\\f" in line or "\x7f" in line or _has_sign(line):
        return False
    return line.isascii() or not (_INVISIBLE.search(line) or _LINE_BREAK.search(line) or _WIDE.search(line))


def encode_line(value: Json) -> str:
    """Return `value` as one line of compact JSON. Raises the encoder's error for unsupported values."""
    return _encoder.encode(value).decode()


def choose_marker(*parts: str) -> str:
    """Return a deterministic word that occurs in none of `parts`."""
    for salt in count():
        marker = digest_parts(parts, salt)
        if is_free(marker, parts):
            return marker
    raise AssertionError("there is always a next number")


def digest_parts(parts: tuple[str, ...], salt: int) -> str:
    """Return 128 bits that depend on every character of `parts`."""
    state = sha256(str(salt).encode())
    for part in parts:
        encoded = part.encode()
        # With the length before each part: moving a character from one part to the next changes the digest.
        state.update(b"%d:" % len(encoded))
        state.update(encoded)
    return state.hexdigest()[:32]


def is_free(marker: str, parts: tuple[str, ...]) -> bool:
    """Return whether `marker` occurs in none of `parts`, ignoring case."""
    # Also in upper case, because a model may not distinguish them.
    return not any(marker in part or marker in part.lower() for part in parts)


def fence_line(line: str, marker: str) -> str:
    """Return the block of data: a marker line, the material, the closing marker line."""
    return f"<<<DATA {marker}>>>\n{line}\n<<<END OF DATA {marker}>>>"


def _has_sign(text: str) -> bool:
    return any(sign in text for sign in _SIGNS)


def _replace_delimiter(match: re.Match[str]) -> str:
    return match[0].translate(_LOOK_ALIKES)
