"""Replaces `${NAME}` in settings by the variable of that name from a given mapping. `$${` is a literal `${`."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from proctor.formats.text.located import Located, Reading
from proctor.model.evidence import Json
from proctor.model.lazy_pattern import lazy_pattern
from proctor.model.show import nearest

# The closing brace is optional, so that a reference without one is reported instead of being sent.
_MARK = lazy_pattern(r"\$(\$?)\{([^}]*)(\}?)")
_NAME = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# An address without a user, a password or a query is not secret, and messages are of little use without it.
_BARE_ADDRESS = lazy_pattern(r"https?://[^@?#]*\Z")
_SHORTEST_SECRET = 4
"""The minimum length of a masked value: masking shorter ones would black out half of a report and protect nothing."""
_SECRET_PLACE = lazy_pattern(r"\.(?:api_key|token|password|client_secret)\Z|\.(?:auth|headers|env)\b")
_AFTER_HOST = lazy_pattern(r"https?://[^/?#$]+[/?]")
_REDACTED = "[redacted]"  # a secret in a recording


class References:
    """The variables that `${NAME}` may name, and the values that were used."""

    missing = "the environment variable {name} is not set"
    """The message for a missing name."""
    remedy = "set it before the run: export {name}=..."

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._used: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._variables

    def is_excused(self, path: str, before: str) -> bool:
        """Return whether the variable named at `path`, after the text `before`, may be missing."""
        return False

    def list_names(self) -> tuple[str, ...]:
        """Return all variable names."""
        return tuple(self._variables)

    def find_value(self, name: str) -> str:
        """Return the value of an existing variable, which from now on counts as a secret."""
        self._used[name] = self._variables[name]
        return self._variables[name]

    @property
    def secrets(self) -> frozenset[str]:
        """Values that must not be shown or stored: all used ones, except bare addresses."""
        return frozenset(value for value in self._used.values() if len(value) >= _SHORTEST_SECRET and not _BARE_ADDRESS.match(value))

    def fill(self, value: Json) -> Json:
        """Return the value with every reference in its texts replaced; structs, objects and lists are walked."""
        if isinstance(value, str):
            return _MARK.sub(self._replace, value) if "${" in value else value
        if isinstance(value, dict):
            return {key: self.fill(member) for key, member in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)([self.fill(item) for item in value])
        if isinstance(value, msgspec.Struct):
            return msgspec.structs.replace(value, **{field: self.fill(getattr(value, field)) for field in value.__struct_fields__})
        return value

    def _replace(self, match: re.Match[str]) -> str:
        # `$${` loses its first `$` and is otherwise unchanged.
        return match[0][1:] if match[1] else self.find_value(match[2])


class ReplayedReferences(References):
    """The variables of an offline run: an unset secret is redacted as in recordings, since nothing is sent."""

    def is_excused(self, path: str, before: str) -> bool:
        """Return whether the place is a key, a token, a header or after the host of an address; a host or a name must not be missing."""
        return _SECRET_PLACE.search(path) is not None or (path.endswith("url") and _AFTER_HOST.match(before) is not None)

    def find_value(self, name: str) -> str:
        """Return the value of the variable, or its placeholder in recordings."""
        return super().find_value(name) if name in self else _REDACTED


def check_references(node: Located, reading: Reading, references: References) -> None:
    """Report every unresolvable reference below `node`."""
    if isinstance(node.value, str):
        for match in _MARK.finditer(node.value) if "${" in node.value else ():
            if not match[1]:
                name = match[2]
                if not match[3] or not _NAME.match(name):
                    reading.error(
                        node,
                        f"{match[0][:40]!r} is not a reference to a variable",
                        expected="${NAME}, with letters, digits and underscores",
                        hint="a literal ${ is written $${",
                        code="missing_variable",
                    )
                elif name not in references and not references.is_excused(node.path, str(node.value)[: match.start()]):
                    reading.error(
                        node,
                        references.missing.format(name=name),
                        nearest=nearest(name, references.list_names()),
                        hint=references.remedy.format(name=name),
                        code="missing_variable",
                    )
    for _, member in node.members():
        check_references(member, reading, references)
    for item in node.items():
        check_references(item, reading, references)
