"""The properties of a span that depend only on its attribute names and value types, cached by shape, and the decoding of values."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from operator import itemgetter

from proctor.evidence.otlp.spans import NOT_UNDERSTOOD
from proctor.evidence.traces import vocabulary
from proctor.evidence.traces.vocabulary import CARRIED, NAMES
from proctor.evidence.unknowns.unrecognised import PASSED
from proctor.evidence.values.access import is_misspelt, list_of
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.account import Part
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, decode_embedded

Names = dict[str, tuple[str, ...]]
_MAX_CACHED_NAMES = 200
"""Attributes of a span whose shape is cached; a sender who invents names must not fill the memory."""
_INDEX: dict[str, list[tuple[str, int]]] = {}
for _table, _names in NAMES.items():
    for _rank, _name in enumerate(_names):
        _INDEX.setdefault(_name, []).append((_table, _rank))
_NONE: Names = dict.fromkeys(NAMES, ())
_CAPTURED = ("input_messages", "output_messages", "output_text", "output_calls", "conversations")
_PASSED = frozenset(("arguments", "args", "parameters", "tool_input"))
_CALLEE = re.compile(r"(?:(?:^|.*[._])(?:tool|function|call[._]?name)|^func|^action|^command)(?:[._]?name)?$", re.IGNORECASE)
_KIND_HINT = re.compile(r"(?:^|[._])(?:kind|type|op|operation)$", re.IGNORECASE)
_BY_LENGTH: dict[int, list[str]] = {}
for _name in _INDEX:
    if not _name.isalpha():  # A plain word (`output`) is too close to others (`outputs`).
        _BY_LENGTH.setdefault(len(_name), []).append(_name)
_INDEXED_INPUT = tuple(f"{name}." for name in vocabulary.INDEXED_INPUT)
_INDEXED_OUTPUT = tuple(f"{name}." for name in vocabulary.INDEXED_OUTPUT)
_RECOGNISED = frozenset((*_INDEX, *vocabulary.CONVERSATION, vocabulary.CHOICES, vocabulary.BETA, NOT_UNDERSTOOD, "haystack.component.type"))
_NOT_LISTED = (*_INDEXED_INPUT, *_INDEXED_OUTPUT, *vocabulary.MACHINERY)
_KIND_WORDS = ("logfire.msg_template", "haystack.component.type")
_PLAIN = frozenset((str, int, float, bool, type(None)))
_SPEAKING = frozenset((*NAMES["output_text"], "all_messages_events", "gen_ai.output.messages", "gen_ai.input.messages"))
_COUNTED = ("input_tokens", "output_tokens", "total_tokens", "cached_tokens", "cache_write_tokens")
"""The attributes with tokens, in the order of the fields of `Usage`."""
COUNTS = frozenset(name for table in _COUNTED[:3] for name in NAMES[table])
_TYPES: dict[str, type] = {
    **dict.fromkeys((*NAMES["kind"], *vocabulary.TOOL_MARKS, *NAMES["output_text"], *NAMES["n8n"][:3]), str),
    **dict.fromkeys(COUNTS, int),
}


class Shape:
    """The known attributes of a span by meaning, each tuple in the order of the vocabulary."""

    def __init__(self, keys: tuple[str, ...], types: tuple[type, ...]) -> None:
        self.keys = keys
        found: dict[str, list[tuple[int, str]]] = {}
        for key in keys:
            for table, rank in _INDEX.get(key, ()):
                found.setdefault(table, []).append((rank, key))
        self.names = names = {**_NONE, **{table: tuple(key for _, key in sorted(ranked)) for table, ranked in found.items()}}
        self.indexed_input = any(key.startswith(_INDEXED_INPUT) for key in keys)
        self.indexed_output = any(key.startswith(_INDEXED_OUTPUT) for key in keys)
        self.indexed_tools = any(key.startswith("llm.tools.") for key in keys)
        self.tool_marks = tuple(key for key in keys if key in vocabulary.TOOL_MARKS)
        self.has_model_mark = not vocabulary.MODEL_MARKS.isdisjoint(keys)
        self.has_agent_mark = not _SPEAKING.isdisjoint(keys)
        words = [key for key in [*names["kind"], *names["tool_name"], *_KIND_WORDS] if key in keys]
        self.kind_words = itemgetter(*words) if words and _PLAIN.issuperset(types[keys.index(key)] for key in words) else None
        """Returns the values that determine the kind of a span together with its name, unless one of them is a list or an object."""
        self.kinds: dict[object, str | None] = {}
        texts = [key for key, kind in zip(keys, types, strict=True) if kind is str]
        self.texts = itemgetter(texts[0], *texts) if texts else None
        """Returns the texts of a span, the first one twice: for a single key the result would not be a tuple."""
        self.only_messages = tuple(key for key in keys if key in vocabulary.ONLY_MESSAGES)
        self.counts = tuple(names[table] for table in _COUNTED)
        self.has_counts = any(self.counts)
        is_usual = list(map(len, self.counts)) == [1, 1, 0, 0, 0]
        self.usual_counts = itemgetter(self.counts[0][0], self.counts[1][0]) if is_usual else None
        """Returns the tokens of a span that reports input and output tokens once each, and no others."""
        self.failures = tuple(key for key in vocabulary.FAILURES if key in keys)
        self.answers = len(names["output_messages"]) + self.indexed_output + bool(names["output_text"] or names["output_calls"])
        """The number of places that may have an answer."""
        self.work = NOT_UNDERSTOOD if NOT_UNDERSTOOD in keys else next((key for key in keys if is_work(key)), None)
        """The first attribute that describes the work of an agent."""
        self.passes_arguments = any(key.rpartition(".")[2] in _PASSED for key in keys)
        has_content = "output.value" in keys or self.indexed_input or self.indexed_output or any(map(names.get, _CAPTURED))
        self.has_texts = bool(has_content or names["input_value"] or names["output_value"])
        self.has_request = has_content or bool(names["finish"] or names["parameters"] or vocabulary.CHOICES in keys)
        """Whether a request to a model has more than its name and its tokens."""
        self.has_response_id = bool(names["response_id"]) or "output.value" in keys
        # The rest is for rules a to c: what is not read.
        self.unrecognised = tuple(key for key in keys if not is_recognised(key))
        """Attributes that are not read, except those of infrastructure and settings."""
        is_given = any(key.rpartition(".")[2] in PASSED for key in keys)
        self.callees = tuple(key for key in self.unrecognised if _CALLEE.match(key)) if is_given else ()
        if "name" in keys and not _PASSED.isdisjoint(keys):
            self.callees += ("name",)
        """Attributes that may name a tool, if others may be its arguments."""
        self.kind_hints = tuple(key for key in self.unrecognised if _KIND_HINT.search(key))
        self.near_misses = tuple((key, parts) for key in keys if key not in _RECOGNISED and (parts := find_near_parts(key)))
        """Attributes that are one letter away from a read attribute, and the parts that it carries."""
        wrong = (key for key, kind in zip(keys, types, strict=True) if kind not in (_TYPES.get(key, kind), type(None)))
        self.suspects = tuple(key for key in [NOT_UNDERSTOOD, *wrong] if key in keys)
        """Attributes that may be unreadable: neither a text nor a count as their names require."""
        self.is_clean = not (self.unrecognised or self.near_misses or self.suspects)


def is_recognised(key: str) -> bool:
    """Return whether an attribute is read, or describes infrastructure or settings."""
    return key in _RECOGNISED or key.startswith(_NOT_LISTED)


def is_work(key: str) -> bool:
    """Return whether an attribute describes the work of an agent."""
    return key.startswith(vocabulary.GENAI_PREFIXES) and not key.startswith(vocabulary.NOT_WORK)


def may_hold_content(key: str) -> bool:
    """Return whether an attribute of a span or an event may hold calls, results or text that is read."""
    if key in vocabulary.EVENT_CONTENT or key.startswith((*_INDEXED_INPUT, *_INDEXED_OUTPUT)):
        return True
    return any(table in CARRIED for table, _ in _INDEX.get(key, ()))


@functools.lru_cache(maxsize=4096)
def find_near_parts(key: str) -> tuple[Part, ...]:
    """Return the parts carried by the attribute that a name nearly matches: `gen_ai.tool.namez`."""
    names = [name for length in range(len(key) - 1, len(key) + 2) for name in _BY_LENGTH.get(length, ())]
    near = next((name for name in names if is_misspelt(key, (name,))), None)
    return tuple(dict.fromkeys(part for table, _ in _INDEX[near] for part in CARRIED.get(table, ()))) if near is not None else ()


_recall_shape = functools.lru_cache(maxsize=1024)(Shape)


def find_shape(attributes: dict[str, Json]) -> Shape:
    """Return the shape of a span with these attributes."""
    keys, types = tuple(attributes), tuple(map(type, attributes.values()))
    return _recall_shape(keys, types) if len(keys) <= _MAX_CACHED_NAMES else Shape(keys, types)


_CONVENTIONS = {name: (tuple(marks.split()), tuple(scopes.split())) for name, (marks, scopes) in vocabulary.CONVENTIONS.items()}


def list_conventions(keys: Iterable[str], scopes: Iterable[str]) -> list[str]:
    """Return the conventions that attributes or scopes belong to."""
    return [
        name
        for name, (marks, prefixes) in _CONVENTIONS.items()
        if any(scope.startswith(prefixes) for scope in scopes) or any(key.startswith(marks) for key in keys)
    ]


# --- values

_NUMBER = re.compile(r"^\d{1,4}$")
_MAX_SEGMENTS = 16
"""Levels of a flattened name; the conventions need eight."""


def decode_attribute(attributes: dict[str, Json], key: str) -> Json:
    """Return the value of an attribute: a structure from its JSON text, a text without its quotes."""
    value = attributes.get(key)
    return unquote(value) if type(value) is not str or value[:1] == '"' else decode_container(value)


def unquote(value: Json) -> Json:
    """Return a text without its quotes: MLflow writes every attribute as JSON."""
    if isinstance(value, str) and value[:1] == '"':
        inner = decode_embedded(value)
        return value if inner is MISSING else inner
    return value


def find_value(attributes: dict[str, Json], keys: tuple[str, ...]) -> Json:
    """Return the first value under these keys that is not null."""
    for key in keys:
        if attributes[key] is not None:
            return attributes[key]
    return None


def find_decoded(attributes: dict[str, Json], keys: tuple[str, ...]) -> tuple[Json, Json]:
    """Return the first value under these keys that is neither null nor empty, decoded and as written."""
    for key in keys:
        value = decode_attribute(attributes, key)
        if value not in (None, "", "null"):
            return value, attributes[key]
    return None, None


def unflatten(attributes: dict[str, Json], prefix: str) -> list[Json]:
    """Return a list of nested objects from attributes such as `prefix.0.message.role`."""
    start = f"{prefix}."
    flat = {key[len(start) :]: value for key, value in attributes.items() if key.startswith(start)}
    return list_of(_nest(flat, 0)) if flat else []


def _nest(flat: dict[str, Json], depth: int) -> Json:
    """Return nested values from dotted names: numbers index lists, other segments are fields."""
    if depth > _MAX_SEGMENTS:
        return flat
    groups: dict[str, dict[str, Json]] = {}
    inner: dict[str, Json] = {}
    for key, value in flat.items():
        head, dot, rest = key.partition(".")
        if dot:
            groups.setdefault(head, {})[rest] = value
        else:
            inner[head] = value
    inner |= {head: _nest(group, depth + 1) for head, group in groups.items()}
    # By number: attributes come in any order, and as text "10" sorts before "2".
    if inner and all(_NUMBER.match(head) for head in inner):
        return [inner[head] for head in sorted(inner, key=int)]
    # OpenInference puts each message and each part under one more name (`0.message.role`).
    for wrapper in ("message", "tool_call", "message_content", "completion", "prompt"):
        if set(inner) == {wrapper} and isinstance(inner[wrapper], dict):
            return inner[wrapper]
    return inner
