"""Checks written as one function of evidence: `@proctor.check` in a file that `proctor.yaml` names, or passed from Python.

    @proctor.check
    def words_within(evidence, *, most: int):
        "The answer has at most so many words."
        return len(evidence.text.split()) <= most

The name is the function's, the parameters after the first are the fields, the docstring is the description. What it returns is read here.
The spec of such a check carries its entry, so that a suite that was read is decided without knowing the file it came from.
"""

from __future__ import annotations

import inspect
import re
import traceback
import typing
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar, cast

import msgspec
from msgspec import inspect as mi

from proctor.checks.registry import CheckEntry, Decide, Reads, set_own_entry
from proctor.errors import CheckFault, InputError
from proctor.model.evidence import Evidence, Json, ToolCall, Usage
from proctor.model.json_values import is_finite
from proctor.model.recorded import Unrecorded, read_recorded
from proctor.model.show import show
from proctor.model.verdict import OUTCOMES, Verdict, errored, failed, lacking, passed

# Evidence as custom checks see it: reading an unrecorded part stops the check, instead of returning nothing


class Watch:
    """Records the accesses of one check to one evidence."""

    def __init__(self, evidence: Evidence) -> None:
        self.account = evidence.account
        self.touched = False
        self.lacking: list[str] = []

    def refuse(self, why: str) -> NoReturn:
        """Record the missing part, and stop the check."""
        self.lacking.append(why)
        raise CheckFault("missing_evidence", why)


def guard_evidence(evidence: Evidence) -> tuple[Evidence, Watch]:
    """Return evidence to pass to a custom check, and the record of its accesses."""
    watch = Watch(evidence)
    return cast(Evidence, _Guarded(evidence, watch)), watch


class _Guarded:
    __slots__ = ("_inner", "_watch")
    _inner: msgspec.Struct
    _watch: Watch

    def __init__(self, inner: msgspec.Struct, watch: Watch) -> None:
        object.__setattr__(self, "_inner", inner)
        object.__setattr__(self, "_watch", watch)

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleVariableOverride,reportIncompatibleMethodOverride] - a proxy
        return type(self._inner)

    def __getattr__(self, name: str) -> Any:
        inner: msgspec.Struct = object.__getattribute__(self, "_inner")
        watch: Watch = object.__getattribute__(self, "_watch")
        watch.touched = True
        if name in inner.__struct_fields__:
            found = read_recorded(inner, name, watch.account)
            return watch.refuse(found.why) if isinstance(found, Unrecorded) else _wrap(found, watch)
        method = getattr(inner, name)
        if isinstance(inner, ToolCall) and name in ("failed", "failure", "failure_kind"):
            ending = read_recorded(inner, "error", watch.account)
            if isinstance(ending, Unrecorded):
                watch.refuse(ending.why)
        if isinstance(inner, Usage) and name == "total":
            return lambda: self.total_tokens
        if isinstance(inner, Evidence) and name == "is_recorded":
            return lambda field: not isinstance(read_recorded(inner, field, watch.account), Unrecorded)
        return method

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"evidence cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        self._watch.touched = True
        return self._inner == (other._inner if type(other) is _Guarded else other)

    def __hash__(self) -> int:
        return id(self._inner)

    def __repr__(self) -> str:
        return f"<{type(self._inner).__name__} of this run>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("evidence cannot be copied out of a check")


def _wrap(value: Json, watch: Watch) -> Json:
    if isinstance(value, msgspec.Struct):
        return _Guarded(value, watch)
    if isinstance(value, tuple):
        return tuple(_wrap(item, watch) for item in value)
    if isinstance(value, (dict, list)):
        # A copy, so that changes by one check do not affect the next one.
        return msgspec.to_builtins(value)
    return value


F = TypeVar("F", bound=Callable[..., object])

_MARK: Final = "__proctor_own_check__"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_READS: Final = Reads((), "exact")
"""Unknown parts are checked on access, as the kind of claim that a function makes is unknown."""
_CARRIED: Final = (mi.AnyType, mi.StrType, mi.BoolType, mi.IntType, mi.FloatType, mi.LiteralType, mi.NoneType)


class OwnMark(msgspec.Struct, frozen=True):
    """The arguments of the decorator."""

    name: str
    pass_at: float


def mark_own_check(function: F, *, name: str | None = None, pass_at: float = 1.0) -> F:
    """Mark a function of evidence as a check; a returned score passes if it is at least `pass_at`."""
    marked: object = function
    if not inspect.isfunction(marked):
        raise TypeError(f"@proctor.check marks a function of evidence, found {type(function).__name__}")
    if not (is_finite(pass_at) and 0 < pass_at <= 1):
        raise ValueError(f"pass_at: expected a number above 0 and at most 1, found {pass_at!r}")
    setattr(function, _MARK, OwnMark(name or function.__name__, pass_at))
    return function


def is_own_check(value: object) -> bool:
    """Return whether `@proctor.check` has marked this."""
    return isinstance(getattr(value, _MARK, None), OwnMark)


def read_own_check(function: Callable[..., Any]) -> CheckEntry:
    """Return the check for a function; an unmarked one is treated as marked. Raises `InputError`."""
    if not is_own_check(function):
        mark_own_check(function)
    # Read once: specs are recognised by their type, and reading again would create another type.
    known: CheckEntry | None = getattr(function, "__proctor_entry__", None)
    if known is not None:
        return known
    mark: OwnMark = getattr(function, _MARK)
    place = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
    if _NAME.fullmatch(mark.name) is None:
        raise InputError(f"{place}: a check is named in lower case with underscores, found {mark.name!r}")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InputError(f"{place}: the check {mark.name!r} must be a plain function, not asynchronous and not a generator")
    spec, lists = _build_spec(function, mark.name, place)
    doc = inspect.cleandoc(function.__doc__ or "").strip()
    required = [field.name for field in msgspec.structs.fields(spec) if field.required]
    names = spec.__struct_fields__
    entry = CheckEntry(
        name=mark.name,
        spec=spec,
        prepare=lambda given: _make_decide(function, mark, given, lists),
        shorthand=names[0] if len(names) == 1 else required[0] if len(required) == 1 else None,
        judged=False,
        summary=" ".join(doc.split("\n\n")[0].split()),
        example="",
        owner=function.__code__.co_filename,
        reads=_READS,
        product=True,
    )
    set_own_entry(spec, entry)
    function.__proctor_entry__ = entry  # type: ignore[attr-defined]  # a function takes attributes
    return entry


def _build_spec(function: Callable[..., Any], name: str, place: str) -> tuple[type[msgspec.Struct], frozenset[str]]:
    """Return the struct of a check's fields, and which of them are lists."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
        raise InputError(f"{place}: the first parameter of the check {name!r} must be the evidence: def {name}(evidence, ...)")
    try:
        hints = typing.get_type_hints(function)
    except Exception as error:
        raise InputError(f"{place}: the check {name!r}: an annotation cannot be read: {error}") from None
    fields: list[Any] = []
    for parameter in parameters[1:]:
        if parameter.kind not in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            raise InputError(f"{place}: the check {name!r}: the fields of a check have names, so {parameter} cannot be one")
        kind = hints.get(parameter.name, Any)
        default = parameter.default
        if isinstance(default, (list, dict, set)):
            # A copy for every spec.
            default = msgspec.field(default_factory=default.copy)
        fields.append((parameter.name, kind) if default is inspect.Parameter.empty else (parameter.name, kind, default))
    title = "".join(part.capitalize() for part in name.split("_"))
    try:
        spec = msgspec.defstruct(title, fields, frozen=True, kw_only=True, omit_defaults=True, module=function.__module__)
        info = mi.type_info(spec)
    except TypeError as error:
        raise InputError(f"{place}: the check {name!r}: {error}") from None
    assert isinstance(info, mi.StructType)
    for field in info.fields:
        if not _can_be_carried(field.type):
            reason = f"{place}: the check {name!r}: a suite cannot carry a {hints[field.name]} for {field.name!r}"
            raise InputError(f"{reason}; take text, numbers, true/false, lists or objects of these")
    return spec, frozenset(field.name for field in info.fields if isinstance(field.type, mi.ListType))


def _can_be_carried(info: mi.Type) -> bool:
    match info:
        case mi.ListType() | mi.VarTupleType():
            return _can_be_carried(info.item_type)
        case mi.DictType():
            return isinstance(info.key_type, (mi.StrType, mi.AnyType)) and _can_be_carried(info.value_type)
        case mi.UnionType():
            return all(_can_be_carried(each) for each in info.types)
        case mi.StructType():
            return all(_can_be_carried(field.type) for field in info.fields)
        case _:
            return isinstance(info, _CARRIED)


def _make_decide(function: Callable[..., Any], mark: OwnMark, spec: msgspec.Struct, lists: frozenset[str]) -> Decide:
    given: dict[str, Json] = {name: getattr(spec, name) for name in spec.__struct_fields__}

    def decide(evidence: Evidence) -> Verdict:
        seen, watch = guard_evidence(evidence)
        # A new list for each evidence, so that changes by one call do not affect the next.
        values = {name: list(value) if name in lists else value for name, value in given.items()}
        try:
            verdict = _read_return_value(function(seen, **values), mark, function)
        # Not an error of the check: `decide_guarded` has its own verdict for it.
        except MemoryError:
            raise
        # Includes SystemExit: a check must not end the run.
        except (Exception, SystemExit) as error:
            file = function.__code__.co_filename
            frames = traceback.extract_tb(error.__traceback__)
            # The last line in the author's own file: deeper frames are in libraries.
            own = [frame for frame in frames if frame.filename == file] or list(frames[-1:])
            place = f"{own[-1].filename}:{own[-1].lineno}" if own else file
            text = "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=8))
            verdict = errored("check_raised", f"{place}: {type(error).__name__}: {error}", details={"traceback": text[:20_000]})
        # Also if the check caught the exception and continued: its result rests on missing evidence.
        if watch.lacking:
            return lacking(watch.lacking[0])
        if verdict.outcome == "pass" and not watch.touched:
            return errored("looked_at_nothing", f"the check {mark.name!r} passed without having looked at the evidence")
        return verdict

    return decide


def _read_return_value(answer: object, mark: OwnMark, function: Callable[..., Any]) -> Verdict:
    """Convert the return value of a check to a verdict: true or false, a reason for failing, a score, or a verdict."""
    # Before numbers: in Python a boolean is a number, and `False` would be a score.
    if isinstance(answer, bool):
        return passed(f"{mark.name}, as expected") if answer else failed(f"{mark.name} does not hold")
    if isinstance(answer, str) and answer.strip():
        return failed(answer)
    if isinstance(answer, (int, float)) and is_finite(answer) and 0 <= answer <= 1:
        reason = f"scored {float(answer):g}, passes from {mark.pass_at:g}"
        return passed(reason, score=float(answer)) if answer >= mark.pass_at else failed(reason, score=float(answer))
    if isinstance(answer, Verdict) and answer.outcome in OUTCOMES and is_finite(answer.score) and 0 <= answer.score <= 1:
        return answer
    found = "nothing" if answer is None else f"{type(answer).__name__} {show(repr(answer), 80)}"
    place = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
    expected = "true or false, a text (the reason for failing), a score from 0 to 1, or a Verdict"
    return errored("no_verdict", f"{place}: {mark.name} returned {found}; expected {expected}")
