"""Removes secrets from everything that is stored.

By name: the value of a field, header or attribute with a secret name (ignoring case and punctuation, also as the end of a longer name:
`databasePassword`, `http.request.header.authorization`), as a plain field or a pair of `key` or `name` with `value`. Token counters are
excluded. By pattern: keys of well-known services, bearer tokens, JSON web tokens, private keys, passwords in addresses, and JSON fields
inside texts, by the same rules as recordings. JSON schemas of secret fields are not secrets. Redaction is idempotent.
"""

from __future__ import annotations

import re
from functools import lru_cache

from proctor.cassettes.entries import REDACTED, Scrubber
from proctor.model.evidence import Json
from proctor.model.json_values import is_number

_ENDINGS = (
    "authorization", "cookie", "setcookie", "password", "passwd", "passphrase",
    "apikey", "apisecret", "accesskey", "secretkey", "privatekey", "signingkey", "encryptionkey", "subscriptionkey", "authkey",
    "openaikey", "anthropickey", "secretaccesskey", "servicekey", "masterkey",
    "secret", "clientsecret", "credentials",
)  # fmt: skip
_TOKEN_ENDINGS = (
    "accesstoken", "refreshtoken", "idtoken", "authtoken", "bearertoken", "sessiontoken", "apitoken", "csrftoken",
    "securitytoken", "bottoken",
)  # fmt: skip
_PUNCTUATION = re.compile(r"[^a-z0-9]+")
_SCRUBBER = Scrubber()
# A text without these has nothing to redact. Searching them is much faster than the patterns; a group is searched only if its punctuation
# is present.
_ANYWHERE = ("AKIA", "ASIA", "AIza", "eyJ")
_SCHEMES = ("bearer", "basic ")
_WITH_DASHES = (
    "sk-", "vk_", "mibo_", "proctor_org_", "proctor_proj_",
    "vrl_", "-----begin", "ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_", "glpat-", "xox", "hf_", "gsk_",
    "nvapi-", "r8_",
)  # fmt: skip
_IN_FIELDS = ("authori", "authent", "cookie", "passw", "passphrase", "secret", "key", "token", "credential", "://", "sig=", "signature=")
_SHORTEST = 8
_SCHEMA_WORDS = ("type", "$ref", "anyOf", "oneOf", "allOf", "description", "enum")


def redact(value: Json) -> Json:
    """Return a copy of `value` without secrets. Any depth."""
    # An explicit stack inside a list: any depth, and a bare text is treated like a member.
    root: list[Json] = [value]
    # Copied containers whose members are still to be visited, and whether they are the fields of a JSON schema.
    waiting: list[tuple[dict[str, Json] | list[Json], bool]] = [(root, False)]
    while waiting:
        holder, schema = waiting.pop()
        if isinstance(holder, list):
            for position, member in enumerate(holder):
                if isinstance(member, str):
                    holder[position] = redact_text(member)
                elif isinstance(member, (dict, list)):
                    holder[position] = copied = member.copy()
                    waiting.append((copied, False))
            continue
        if "value" in holder and _redact_pair(holder):
            continue
        for name, member in holder.items():
            if isinstance(member, str):
                holder[name] = REDACTED if member and names_a_secret(name) else redact_text(member)
            elif isinstance(member, (dict, list)):
                if names_a_secret(name) and not (schema and (isinstance(member, dict) and any(word in member for word in _SCHEMA_WORDS))):
                    holder[name] = REDACTED if member else member
                    continue
                holder[name] = copied = member.copy()
                waiting.append((copied, name == "properties"))
            # A flag (`has_password: true`) is not a secret.
            elif is_number(member) and names_a_secret(name) and "token" not in name.lower():
                holder[name] = REDACTED
    return root[0]


def redact_text(text: str) -> str:
    """Return a text without secrets."""
    return _SCRUBBER.scrub_text(text) if len(text) >= _SHORTEST and may_hold_a_secret(text) else text


def may_hold_a_secret(text: str) -> bool:
    """Return whether a text may contain a secret. Several texts can be tested together."""
    low = text.lower()
    return (
        _has_any(text, _ANYWHERE)
        or _has_any(low, _SCHEMES)
        or (("-" in low or "_" in low) and _has_any(low, _WITH_DASHES))
        or (('"' in low or ":" in low or "=" in low) and _has_any(low, _IN_FIELDS))
    )


def _has_any(text: str, markers: tuple[str, ...]) -> bool:
    # A loop, since `any` costs three times as much, and this runs for every text of every trace.
    for marker in markers:  # noqa: SIM110
        if marker in text:
            return True
    return False


@lru_cache(maxsize=4096)
def names_a_secret(name: str) -> bool:
    """Return whether a field of this name contains a secret."""
    # Only endings matter, and a name may be as long as a body.
    plain = _PUNCTUATION.sub("", name[-200:].lower())
    return plain == "token" or plain.endswith(_ENDINGS) or plain.endswith(_TOKEN_ENDINGS)


def _redact_pair(holder: dict[str, Json]) -> bool:
    """Redact a pair `{key: "authorization", value: ...}`, as in OTLP attributes and lists of headers; return whether that is all of it."""
    name = holder.get("key", holder.get("name"))
    if not isinstance(name, str):
        return False
    value = holder["value"]
    is_otlp_value = isinstance(value, dict) and len(value) == 1 and next(iter(value)).endswith("Value")
    if names_a_secret(name):
        if is_otlp_value:
            holder["value"] = value if "boolValue" in value else {"stringValue": REDACTED}
        elif value and not isinstance(value, bool):
            holder["value"] = REDACTED
        return len(holder) == 2
    if not is_otlp_value or len(holder) != 2:
        return False
    text: Json = value.get("stringValue")
    if isinstance(text, str):
        holder["value"] = {"stringValue": redact_text(text)}
        return True
    # Numbers and flags under a harmless name are safe; lists and objects are visited.
    return "intValue" in value or "boolValue" in value or "doubleValue" in value
