"""Takes secrets out of everything that is stored.

By name: the value of a field, header or attribute whose name says that it is secret (compared without case and punctuation, also as the
end of a longer name: `databasePassword`, `http.request.header.authorization`). Counters of tokens are none. Both a plain field and a pair
of `key` or `name` with `value`, as OTLP and header lists have them, count. By looks: keys of well-known services, bearer tokens, JSON web
tokens, private keys, passwords in addresses, and fields of JSON inside texts, by the same rules as recordings. Names are kept.

What a JSON schema says about a field named `password` is no password. Redacting twice changes nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache

from proctor.cassettes.scrub import REDACTED, Scrubber
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
# A text without these holds nothing that the scrubber takes out. They are much faster to look for than its patterns are to match, and
# those of a group are not looked for in a text without the punctuation that stands with them.
_ANYWHERE = ("AKIA", "ASIA", "AIza", "eyJ")
_SCHEMES = ("bearer", "basic ")
_WITH_DASHES = (
    "sk-", "vk_", "mibo_", "vrl_", "-----begin", "ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_", "glpat-", "xox", "hf_", "gsk_",
    "nvapi-", "r8_",
)  # fmt: skip
_IN_FIELDS = ("authori", "authent", "cookie", "passw", "passphrase", "secret", "key", "token", "credential", "://", "sig=", "signature=")
_SHORTEST = 8
_SCHEMA_WORDS = ("type", "$ref", "anyOf", "oneOf", "allOf", "description", "enum")


def redact(value: Json) -> Json:
    """Return a copy of `value` without secrets. Any depth."""
    # With a stack of our own and a list around it: any depth, and a bare text is treated like any member.
    root: list[Json] = [value]
    # Containers that were copied and whose members are still to be looked at, and whether they are the fields of a JSON schema.
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
                if names_a_secret(name) and not (schema and _is_schema(member)):
                    holder[name] = REDACTED if member else member
                    continue
                holder[name] = copied = member.copy()
                waiting.append((copied, name == "properties"))
            # A flag (`has_password: true`) tells nothing.
            elif is_number(member) and names_a_secret(name) and not _is_counter(name):
                holder[name] = REDACTED
    return root[0]


def redact_text(text: str) -> str:
    """Return a text without what looks like a secret."""
    return _SCRUBBER.scrub_text(text) if len(text) >= _SHORTEST and may_hold_a_secret(text) else text


def may_hold_a_secret(text: str) -> bool:
    """Return whether a text shows a sign of a secret; one without any holds none. Several texts can be asked about together."""
    low = text.lower()
    return (
        _has_any(text, _ANYWHERE)
        or _has_any(low, _SCHEMES)
        or (("-" in low or "_" in low) and _has_any(low, _WITH_DASHES))
        or (('"' in low or ":" in low or "=" in low) and _has_any(low, _IN_FIELDS))
    )


def _has_any(text: str, signs: tuple[str, ...]) -> bool:
    # A loop, since this runs for every text of every trace, and `any` costs three times as much.
    for sign in signs:  # noqa: SIM110 - as said
        if sign in text:
            return True
    return False


@lru_cache(maxsize=4096)
def names_a_secret(name: str) -> bool:
    """Return whether a field of this name holds a secret."""
    # Only endings matter, and a name may be as long as a body.
    plain = _PUNCTUATION.sub("", name[-200:].lower())
    return plain == "token" or plain.endswith(_ENDINGS) or plain.endswith(_TOKEN_ENDINGS)


def _redact_pair(holder: dict[str, Json]) -> bool:
    """Redact `{key: "authorization", value: ...}`, as OTLP and lists of headers have it; return whether nothing is left to do.

    Most of a trace are such pairs with a text, so they are done here.
    """
    name = holder.get("key", holder.get("name"))
    if not isinstance(name, str):
        return False
    value = holder["value"]
    of_otlp = isinstance(value, dict) and len(value) == 1 and next(iter(value)).endswith("Value")
    if names_a_secret(name):
        if of_otlp:
            holder["value"] = value if "boolValue" in value else {"stringValue": REDACTED}
        elif value and not isinstance(value, bool):
            holder["value"] = REDACTED
        return len(holder) == 2
    if not of_otlp or len(holder) != 2:
        return False
    text: Json = value.get("stringValue")
    if isinstance(text, str):
        holder["value"] = {"stringValue": redact_text(text)}
        return True
    # Numbers and flags under a harmless name hold nothing; a list or an object has to be walked through.
    return "intValue" in value or "boolValue" in value or "doubleValue" in value


def _is_schema(member: Json) -> bool:
    return isinstance(member, dict) and any(word in member for word in _SCHEMA_WORDS)


def _is_counter(name: str) -> bool:
    return "token" in name.lower()
