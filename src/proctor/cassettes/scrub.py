"""Removes secrets from a recording before it is written, and from a request before it is looked up.

Removed: values of headers, fields and query parameters with a secret name; secrets from the settings, also escaped for JSON or URLs;
text that looks like a key (bearer tokens, keys of well-known services, JSON web tokens, private keys); user and password in URLs. Only
text is removed: `max_tokens: 100` is no secret.

A secret becomes `[redacted]`, which no rule changes again. So a request that was built from a replayed answer is the same as the one that
was recorded. Every pattern is linear in the length of the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import quote

from proctor.model.evidence import Json

REDACTED = "[redacted]"
"""Replaces a secret."""

SHORTEST_SECRET = 8
"""A shorter known secret is not looked for in texts: a key such as `test` would take ordinary words out of every sentence."""

_NAMES = (
    "authorization", "proxy-authorization", "www-authenticate", "cookie", "set-cookie",
    "api-key", "apikey", "x-api-key", "x-goog-api-key", "x-n8n-api-key", "ocp-apim-subscription-key",
    "x-auth-token", "x-access-token", "x-csrf-token", "access-token", "refresh-token", "id-token", "auth-token", "session-token",
    "bearer-token", "token",
    "client-secret", "secret", "secret-key", "secret-access-key", "aws-secret-access-key",
    "private-key", "signing-key", "encryption-key", "access-key",
    "password", "passwd", "passphrase", "credential", "credentials",
)  # fmt: skip
# Compared without dashes and underscores: `api_key`, `api-key` and `apiKey` are one name.
_SECRET_NAMES = frozenset(name.replace("-", "") for name in _NAMES)
_QUERY_NAMES = (
    "api[-_]?key",
    "key",
    "(?:access|auth|id|refresh)[-_]?token",
    "token",
    "sig",
    "signature",
    "client[-_]?secret",
    "secret",
    "password",
)

_NAME_PATTERN = "|".join(sorted((name.replace("-", "[-_]?") for name in _NAMES), key=len, reverse=True))
# A field inside JSON that was written into a text, at the first and at the second level of quoting.
_QUOTED_FIELD = re.compile(rf'(?P<head>"(?:{_NAME_PATTERN})"\s{{0,9}}:\s{{0,9}}")(?:[^"\\]|\\.)++(?=")', re.IGNORECASE | re.DOTALL)
_TWICE_QUOTED_FIELD = re.compile(
    rf'(?P<head>\\"(?:{_NAME_PATTERN})\\"\s{{0,9}}:\s{{0,9}}\\")(?:[^"\\]|\\\\\\"|\\\\|\\[^"\\])++(?=\\")', re.IGNORECASE | re.DOTALL
)
_HEADER_LINE = re.compile(
    r"(?P<head>^[ \t]{0,9}(?:proxy-authorization|authorization|cookie|set-cookie|x-api-key|api-key):[ \t]{0,9})[^\r\n]+",
    re.IGNORECASE | re.MULTILINE,
)
_QUERY = re.compile(rf"(?P<head>[?&](?:{'|'.join(_QUERY_NAMES)})=)[^&#\s\"'<>]+", re.IGNORECASE)
_USER = re.compile(r"(?P<head>\b[a-z][a-z0-9+.-]{1,20}://)[^\s/@:\"'<>]{1,200}:[^\s/@\"'<>]{1,500}(?=@)", re.IGNORECASE)
# A digit is required: `basic authentication` is prose.
_SCHEME = re.compile(r"(?P<head>\b(?:bearer|basic)[ ]{1,3})(?=[^\s]*[0-9])[A-Za-z0-9._~+/=-]{12,}", re.IGNORECASE)
# A digit is required after `sk-` and the like too, so that ordinary names with dashes stay readable.
_KEYS = re.compile(
    r"""
      (?<![\w-])sk-(?=[A-Za-z_-]{0,200}[0-9])[A-Za-z0-9_-]{16,}                           # OpenAI, Anthropic, OpenRouter
    | (?<![\w-])(?:vk|vrl_(?:slv|run|sbx|shr)|mibo)_(?=[A-Za-z_-]{0,200}[0-9])[A-Za-z0-9_-]{16,}  # our own service
    | \bgh[opsur]_[A-Za-z0-9]{20,} | \bgithub_pat_[A-Za-z0-9_]{20,} | \bglpat-[A-Za-z0-9_-]{16,}
    | \bxox[abeoprs]-[A-Za-z0-9-]{10,}
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b
    | \bAIza[0-9A-Za-z_-]{30,}
    | \bhf_[A-Za-z0-9]{20,} | \bgsk_[A-Za-z0-9]{20,} | \bnvapi-[A-Za-z0-9_-]{20,} | \br8_[A-Za-z0-9]{20,}
    | (?<![\w-])eyJ[A-Za-z0-9_-]{10,4000}+\.[A-Za-z0-9_-]{10,8000}+\.[A-Za-z0-9_-]{10,2000}+
    | -----BEGIN\ [A-Z ]{0,30}PRIVATE\ KEY-----[A-Za-z0-9+/=\s\\]{0,20000}+(?:-----END\ [A-Z ]{0,30}PRIVATE\ KEY-----)?
    """,
    re.VERBOSE,
)
# Has a sign of every pattern above: a text without any of these signs is not looked through.
_MAY_HOLD = re.compile(r"[\"?&@]|bearer|basic|authorization|cookie|api-key|sk-|_|-----|xox|AKIA|ASIA|AIza|eyJ|glpat-|nvapi-", re.IGNORECASE)


def names_a_secret(name: str) -> bool:
    """Return whether a header or field of this name holds a secret."""
    return name.lower().replace("-", "").replace("_", "") in _SECRET_NAMES


class Scrubber:
    """Takes secrets out of texts and of JSON."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        spellings: set[str] = set()
        for secret in secrets:
            if len(secret) >= SHORTEST_SECRET:
                # Plain, percent-encoded, and escaped for JSON.
                spellings |= {secret, quote(secret, safe=""), json.dumps(secret)[1:-1]}
        # Longest first: one secret may be part of another.
        ordered = sorted(spellings, key=lambda spelling: (-len(spelling), spelling))
        self._known = re.compile("|".join(re.escape(spelling) for spelling in ordered)) if ordered else None

    def scrub_text(self, text: str) -> str:
        """Return the text without secrets."""
        # Before the quick way out: a known secret need not look like one.
        if self._known is not None:
            text = self._known.sub(REDACTED, text)
        # Most texts hold none of these signs, and one search instead of six is enough for them.
        if not _MAY_HOLD.search(text):
            return text
        if '"' in text:
            text = _QUOTED_FIELD.sub(_redact_tail, text)
            text = _TWICE_QUOTED_FIELD.sub(_redact_tail, text)
        text = _HEADER_LINE.sub(_redact_tail, text)
        if "://" in text or "?" in text or "&" in text:
            text = _USER.sub(_redact_tail, _QUERY.sub(_redact_tail, text))
        return _KEYS.sub(REDACTED, _SCHEME.sub(_redact_tail, text))

    def scrub_value(self, value: Json) -> Json:
        """Return a copy of JSON without secrets. The caller makes sure that it does not nest without end."""
        if isinstance(value, str):
            return self.scrub_text(value)
        if isinstance(value, dict):
            out = {self.scrub_text(key): self._scrub_field(key, member) for key, member in value.items()}
            # Headers are also written as objects with `name` and `value`, as in HAR.
            named: Json = out.get("name")
            if isinstance(named, str) and names_a_secret(named) and isinstance(out.get("value"), str):
                out["value"] = _redact(out["value"])
            return out
        if isinstance(value, list):
            # Headers are also written as pairs.
            if len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], str) and names_a_secret(value[0]):
                return [value[0], _redact(value[1])]
            return [self.scrub_value(item) for item in value]
        return value

    def _scrub_field(self, name: str, value: Json) -> Json:
        if names_a_secret(name):
            if isinstance(value, str):
                return _redact(value)
            if isinstance(value, list):
                return [_redact(item) if isinstance(item, str) else self.scrub_value(item) for item in value]
        return self.scrub_value(value)


def _redact_tail(found: re.Match[str]) -> str:
    return found["head"] + REDACTED


def _redact(value: str) -> str:
    # An empty field is not secret, and worth knowing about.
    return REDACTED if value else value
