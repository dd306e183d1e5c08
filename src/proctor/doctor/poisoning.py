"""Tool poisoning by deterministic rules: texts that address the agent without its user's knowledge.

A rule names what the text does, not words alone, so that ordinary documentation passes ("delete the file", "requires an API key"). No text
leaves this machine.
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from proctor.model.show import shorten

RULES: Final = ("hidden-characters", "orders-to-agent", "concealment", "secret-access", "pretended-markup", "encoded-text", "foreign-tools")

_JOINERS: Final = "\u200c\u200d\ufe0f\ufe0e"
"""Invisible characters with a use in scripts and emoji."""
_ORDERS = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b[^.\n]{0,30}\b(?:previous|prior|above|earlier|all other|your|system)\b[^.\n]{0,20}"
    r"\b(?:instructions?|prompts?|rules|guidelines|messages?)\b"
    r"|\b(?:before|after|instead of|prior to)\b[^.\n]{0,25}\b(?:using|calling|invoking|running|any|every|each)\b[^.\n]{0,25}"
    r"\b(?:other|any|another|every) tools?\b[^.\n]{0,60}\b(?:must|always|first|call|read|send|need)\b"
    r"|\b(?:you|the (?:assistant|agent|model|ai))\b (?:must|shall|have to|should) (?:always |first )*"
    r"(?:call|use|run|invoke|execute) this tool[^.\n]{0,40}\b(?:before|first|instead of|prior|whenever|regardless)\b"
    r"|\byou are now\b[^.\n]{0,40}\b(?:unrestricted|jailbroken|developer mode|in \w+ mode|no longer)\b"
    r"|\b(?:new|updated|real|actual) (?:system )?(?:instructions?|prompt)\s*:"
    r"|\b(?:forward|send|copy|bcc|exfiltrate|upload|post)\b[^.\n]{0,60}\b(?:conversation|chat history|previous messages|system prompt"
    r"|full context|everything (?:the user|you))\b"
    r"|\b(?:include|put|pass|append|repeat|write)\b[^.\n]{0,40}\b(?:system prompt|conversation history|chat history|full conversation)\b",
    re.IGNORECASE,
)
_CONCEALMENT = re.compile(
    r"\b(?:do not|don't|never|must not|without|avoid)\b[^.\n]{0,30}\b(?:te(?:ll|lling)|inform|informing|mention|mentioning|reveal|revealing"
    r"|notify|notifying|show|showing|alert|alerting|disclose)\b[^.\n]{0,25}\b(?:the )?(?:user|human|customer|operator)s?\b"
    r"|\bthe user (?:must|should|shall|need) not (?:know|see|notice|be (?:tol)d|be informed)\b"
    r"|\b(?:silently|secretly|covertly)\b[^.\n]{0,25}\b(?:send|copy|forward|upload|read|call|add|include|run|execute)\b"
    r"|\bhide (?:this|it|the)\b[^.\n]{0,30}\bfrom the (?:user|human)\b",
    re.IGNORECASE,
)
_FILES: Final = (
    r"(?:~|\$HOME|/home/\w+|/root)/\.(?:ssh|aws|gnupg|kube|netrc|config/gcloud|docker|cursor|env)\b|\bid_(?:rsa|ed25519|ecdsa)\b"
    r"|/etc/(?:shadow|passwd)\b|\bmcp\.json\b|\.env file\b|\bclaude_desktop_config"
)
_SECRETS = re.compile(
    rf"\b(?:read|cat|open|load|fetch|get|send|include|pass|provide|access|copy|attach|contents? (?:of|from))\b[^.\n]{{0,40}}(?:{_FILES})"
    r"|\b(?:include|pass|send|paste|provide|attach|forward|supply)\b[^.\n]{0,30}\b(?:the user's|their|your|user|any|all)\b[^.\n]{0,20}"
    r"\b(?:passwords?|private keys?|credentials|ssh keys?|session cookies?|seed phrase|credit card numbers?)\b",
    re.IGNORECASE,
)
_MARKUP = re.compile(
    r"</?\s*(?:important|system|instructions?|secret|hidden|admin|critical|override|assistant|sys)\s*>"
    r"|\[/?(?:INST|SYSTEM|SYS)\]|<\|(?:im_start|im_end|system|endoftext)\|>|<!--|^\s*(?:#+\s*)?system\s*(?:prompt|message)\s*:",
    re.IGNORECASE | re.MULTILINE,
)
_BASE64 = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/]{40,}={0,2}(?![\w+/=])")
_HEX = re.compile(r"(?:\\x[0-9a-fA-F]{2}){12,}|(?:%[0-9a-fA-F]{2}){16,}|(?:&#x?[0-9a-fA-F]+;){10,}")
_DIRECTION = r"\b(?:use|call|invoke|run|prefer|instead of|replaces?|before|after|when(?:ever)?|modif\w+|change)\b[^.\n]{0,60}"


def find_poison(text: str, others: frozenset[str] = frozenset()) -> Iterator[tuple[str, str]]:
    """Yield the rule and the place of everything suspicious in a text."""
    hidden = [char for char in text if is_hidden(char)]
    if hidden:
        codes = ", ".join(sorted({f"U+{ord(char):04X}" for char in hidden})[:4])
        yield "hidden-characters", f"{len(hidden)} invisible characters ({codes})"
    # Looked at as the model reads it: letters of other scripts that look alike, and split words, are folded.
    folded = "".join(char for char in unicodedata.normalize("NFKC", text) if not is_hidden(char))
    for rule, pattern in (
        ("orders-to-agent", _ORDERS),
        ("concealment", _CONCEALMENT),
        ("secret-access", _SECRETS),
        ("pretended-markup", _MARKUP),
    ):
        match = pattern.search(folded)
        if match is not None:
            yield rule, f'"{shorten(match[0].strip(), 120)}"'
    encoded = next((part for part in _BASE64.findall(folded) if _hides_text(part)), None) or next(iter(_HEX.findall(folded)), None)
    if encoded is not None:
        yield "encoded-text", f'"{shorten(encoded, 60)}"'
    for name in sorted(others):
        match = re.search(rf"{_DIRECTION}(?<![\w-]){re.escape(name)}(?![\w-])", folded, re.IGNORECASE)
        if match is not None and ("_" in name or "-" in name or len(name) > 7):
            yield "foreign-tools", f'"{shorten(match[0], 120)}"'


def is_hidden(char: str) -> bool:
    """Return whether a character is invisible and has no use in a description: tags, direction marks, zero-width characters."""
    if char in _JOINERS:
        return False
    if unicodedata.category(char) in ("Cf", "Co", "Cn"):
        return char != "\u00ad"
    return unicodedata.category(char) == "Cc" and char not in "\n\r\t"


def _hides_text(part: str) -> bool:
    """Return whether base64 decodes to readable text: hashes, examples of ids and keys do not."""
    try:
        decoded = base64.b64decode(part + "=" * (-len(part) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    printable = sum(32 <= byte < 127 or byte in (9, 10, 13) for byte in decoded)
    return printable >= 0.95 * len(decoded) and decoded.count(b" ") >= 2
