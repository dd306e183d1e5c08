"""Claims about a JSON answer by JSONPath.

The document is the body of the answer, else its text read as JSON. In our own format one fenced block counts as JSON; in MCPLab files it
does not, and the reason states that the answer was fenced. Equality is strict: a number, a text and a boolean never equal each other, and
lists and objects are equal only if the spec allows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from proctor.checks.registry import Decide, Reads, check
from proctor.checks.shared.answer import answer_json
from proctor.checks.shared.places import open_answer
from proctor.errors import SpecError
from proctor.matchers.mismatch import equal_after_conversion
from proctor.model.evidence import Evidence, Json
from proctor.model.json_values import equal
from proctor.model.show import count_rest, show
from proctor.model.verdict import TextRange, Verdict, failed, passed
from proctor.paths.json_path import compile_path, list_keys


class JsonPath(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer, read as JSON, has (or has not) a value at a JSONPath, optionally equal to a given one."""

    path: str
    """A JSONPath (RFC 9535)."""
    equals: Json | msgspec.UnsetType = msgspec.UNSET
    """The value that some result must equal; left out: the path only has to exist."""
    value: Json | msgspec.UnsetType = msgspec.UNSET
    """Another name of `equals`, as in `json_field`."""
    exists: bool = True
    """False: the path must select nothing."""
    syntax: Literal["rfc9535", "mcplab"] = "rfc9535"
    """`mcplab` also takes the forms its users write: no leading `$`, `[(@.length-1)]`, `.length`."""
    source: Literal["body", "text"] = "body"
    """`text`: always the text of the answer, never a separately recorded body."""
    unfence: bool = True
    """Accept an answer that is one fenced code block."""
    scalars_only: bool = False
    """Lists and objects never equal anything."""
    falsy_is_empty: bool = False
    """A whole answer of `null`, `0`, `false` or `""` has no values at all."""


_MOST_SHOWN = 3
"""The maximum number of values in the reason of a verdict."""


def _locate(spec: JsonPath, evidence: Evidence) -> Iterator[TextRange]:
    """Find the values that are equal, else those that were compared."""
    spec = _read_names(spec)
    document = open_answer(evidence, source=spec.source, unfence=spec.unfence)
    if document is None or (spec.falsy_is_empty and _is_falsy(document.value)):
        return iter(())
    nodes = compile_path(spec.path, spec.syntax).find_nodes(document.value)
    if spec.equals is not msgspec.UNSET:
        nodes = [node for node in nodes if _equal(spec, node[0])] or nodes
    places = (list_keys(node, document.value) for node in nodes)
    return document.locate(keys for keys in places if keys is not None)


@check(
    "json_path",
    shorthand="path",
    example="json_path: {path: '$.items[0].sku', equals: A-17}",
    # Exact even for a path that must exist: half of a JSON document cannot be read at all.
    reads=lambda spec: Reads(("answer",), "exact", "fail" if spec.exists else "error"),
    product=True,
    locate=_locate,
)
def json_path(spec: JsonPath) -> Decide:
    """The answer, read as JSON, has (or has not) a value at a JSONPath, optionally equal to a given one."""
    spec = _read_names(spec)
    path = compile_path(spec.path, spec.syntax)
    compares = spec.equals is not msgspec.UNSET
    if compares and not spec.exists:
        raise SpecError("`equals` needs a value: remove `exists: false`", field="exists")
    claim = f"has the value {show(spec.equals)}" if compares else "exists" if spec.exists else "does not exist"
    good = passed(f"{spec.path} {claim}")

    def decide(evidence: Evidence) -> Verdict:
        if isinstance(answer := answer_json(evidence, source=spec.source, unfence=spec.unfence), Verdict):
            return answer
        value, pointer = answer
        found: list[Json] = [] if spec.falsy_is_empty and _is_falsy(value) else path.find(value)
        if not compares:
            return good if bool(found) == spec.exists else _fail_presence(spec, found, value, pointer)
        if any(_equal(spec, one) for one in found):
            return good
        expected = show(spec.equals)
        note = ""
        if found and spec.scalars_only and all(isinstance(one, (dict, list, tuple)) for one in found):
            note = " (lists and objects never equal anything here)"
        elif any(equal_after_conversion(spec.equals, one) for one in found if isinstance(one, str) != isinstance(spec.equals, str)):
            note = " (equal after conversion)"
        return failed(
            f"expected {expected} at {spec.path}, found {_list_values(found)}{note}",
            details={"path": spec.path, "expected": expected, "found": [show(one) for one in found[:_MOST_SHOWN]]},
            pointers=(pointer,),
        )

    return decide


def _read_names(spec: JsonPath) -> JsonPath:
    if spec.value is msgspec.UNSET:
        return spec
    if spec.equals is not msgspec.UNSET:
        raise SpecError("`equals` and `value` are the same; write one of them", field="value")
    return msgspec.structs.replace(spec, equals=spec.value, value=msgspec.UNSET)


def _is_falsy(value: Json) -> bool:
    return value is None or value is False or value == "" or (isinstance(value, (int, float)) and value == 0)


def _equal(spec: JsonPath, value: Json) -> bool:
    if spec.scalars_only and (isinstance(value, (dict, list, tuple)) or isinstance(spec.equals, (dict, list, tuple))):
        return False
    return equal(value, spec.equals)


def _fail_presence(spec: JsonPath, found: list[Json], document: Json, pointer: str) -> Verdict:
    if spec.exists:
        reason = f"expected a value at {spec.path}, found nothing in {show(document)}"
        return failed(reason, details={"path": spec.path}, pointers=(pointer,))
    reason = f"expected nothing at {spec.path}, found {_list_values(found)}"
    return failed(reason, details={"path": spec.path, "count": len(found)}, pointers=(pointer,))


def _list_values(found: list[Json]) -> str:
    return ", ".join(show(one) for one in found[:_MOST_SHOWN]) + count_rest(len(found), _MOST_SHOWN) or "nothing"
