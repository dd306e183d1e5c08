"""What is kept of an attempt on the service, without secrets: those of the project word for word, others by name and by looks."""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from proctor.cassettes.scrub import REDACTED
from proctor.model.evidence import Json
from proctor.model.run import RunEntry
from proctor.service.redaction import redact, redact_text

# A shorter secret would be found all over innocent text, and take it along.
_SHORTEST = 4


class Cleaner:
    """Takes secrets out of entries and texts."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # Longest first: one secret may be part of another.
        self._secrets = sorted({secret for secret in secrets if len(secret) >= _SHORTEST}, key=lambda secret: (-len(secret), secret))

    def clean_entry(self, entry: RunEntry) -> bytes:
        """Return the entry as JSON that can be read again, whatever an agent answered."""
        value: Json = redact(msgspec.to_builtins(entry))
        try:
            data = msgspec.json.encode(value)
        except UnicodeEncodeError:
            # Halves of surrogate pairs, which no encoding knows; infinite numbers are null, as everywhere.
            sound: Json = json.loads(json.dumps(value), parse_constant=lambda _: None)
            data = json.dumps(sound, ensure_ascii=False).encode("utf-8", errors="replace")
        for secret in self._secrets:
            # In the encoded entry as a whole: a secret may also stand in a name, or be a part of a longer text.
            data = data.replace(_in_json(secret), REDACTED.encode())
        return data

    def clean_text(self, text: str) -> str:
        """Return a text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return redact_text(text)


def _in_json(secret: str) -> bytes:
    # As JSON spells it: a secret with a quote or a backslash stands escaped in the entry.
    return json.dumps(secret, ensure_ascii=False).encode("utf-8", errors="replace")[1:-1]
