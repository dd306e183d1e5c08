"""Replaces values that must not be stored or shown: secrets always, the ids of an attempt on a tape.

A recording is found by its request. The ids of an attempt differ from run to run, so the tape has fixed words in their place, and replayed
answers get the ids of the current attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

import msgspec

from proctor.model.evidence import Json

REDACTED = "[redacted]"
_SECRET_WORDS = ("authorization", "cookie", "token", "secret", "password", "passwd", "api-key", "api_key", "apikey", "-key", "signature")
_SHORTEST_SECRET = 4
"""Characters. A shorter text is not worth hiding, and replacing it would damage ordinary words."""
_SHORTEST_ID = 8
"""Characters. A shorter id may occur in a text by chance, and is not masked."""
_REQUEST, _SESSION = "<<proctor:request_id>>", "<<proctor:session_id>>"


def names_a_secret(name: str) -> bool:
    """Return whether a header or parameter of this name contains a secret."""
    lowered = name.lower()
    return lowered in ("key", "sig") or any(word in lowered for word in _SECRET_WORDS)


def sort_secrets(values: Iterable[str]) -> tuple[str, ...]:
    """Return the secrets, longest first so that none is partly shown, without those that are too short."""
    return tuple(sorted({value for value in values if len(value) >= _SHORTEST_SECRET}, key=lambda value: (-len(value), value)))


class Secrets:
    """Texts that are never shown."""

    def __init__(self, values: Iterable[str]) -> None:
        self._values = sort_secrets(values)

    def hide(self, text: str) -> str:
        """Return the text without secrets."""
        for value in self._values:
            if value in text:
                text = text.replace(value, REDACTED)
        return text

    def hide_in(self, value: Json) -> Json:
        """Return the value with the secrets in its texts removed."""
        return rewrite_texts(value, self.hide) if self._values else value

    def hide_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers without secrets."""
        # Sorted, so that a new recording differs only if something changed.
        return {name.lower(): REDACTED if names_a_secret(name) else self.hide(value) for name, value in sorted(headers.items())}

    def hide_address(self, url: str) -> str:
        """Return an address without user, password and the values of parameters with secret names."""
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        query = parts.query
        # Unchanged if nothing is hidden: parsing and writing a query may change its spelling.
        if any(names_a_secret(name) for name, _ in pairs):
            query = "&".join(f"{quote(name)}={REDACTED if names_a_secret(name) else quote(value)}" for name, value in pairs)
        return self.hide(urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, query, "")))


class Ids:
    """The ids of one attempt, as a tape sees them."""

    def __init__(self, request_id: str, session_id: str) -> None:
        pairs = ((request_id, _REQUEST), (session_id, _SESSION))
        self._pairs = [(real, word) for real, word in pairs if len(real) >= _SHORTEST_ID]

    def mask(self, value: Json) -> Json:
        """Return the value with placeholders instead of the ids."""
        return self._replace(value, self._pairs)

    def restore(self, value: Json) -> Json:
        """Return the value with the ids of this attempt instead of the placeholders."""
        return self._replace(value, [(word, real) for real, word in self._pairs])

    @staticmethod
    def _replace(value: Json, pairs: Sequence[tuple[str, str]]) -> Json:
        def replace(text: str) -> str:
            for old, new in pairs:
                text = text.replace(old, new)
            return text

        return rewrite_texts(value, replace)


def show_settings(settings: msgspec.Struct) -> str:
    """Return the text of settings for tracebacks and logs, without secrets."""
    open_fields = ("type", "method", "flow", "workflow_id", "timeout_s", "response_path")
    visible = {name: getattr(settings, name) for name in open_fields if name in settings.__struct_fields__}
    return f"{type(settings).__name__}({', '.join(f'{name}={value!r}' for name, value in visible.items())}, ...)"


def rewrite_texts(value: Json, change: Callable[[str], str]) -> Json:
    """Return the value with every text in it changed, including keys; its decoder bounds the depth."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): rewrite_texts(member, change) for key, member in value.items()}
    return [rewrite_texts(item, change) for item in value] if isinstance(value, (list, tuple)) else value
