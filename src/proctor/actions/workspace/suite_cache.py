"""Remembers suites that were read before, so that the next `proctor check` need not parse them.

Parsing YAML and building a suite takes a third of a small check. A suite is remembered with everything that its reading depends on: its
whole text, its name, and the times of the files of this program. Only plain native suites are remembered, and only if what comes back
equals what was read, to the last type and position. The files are in a private folder of the user; an invalid one is ignored.
`PROCTOR_SUITE_CACHE=0` disables the cache.
"""

import os
import stat
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from proctor.checks import registry as checks
from proctor.model.case import Assertion, Case, Suite, WhenMissing
from proctor.model.problem import Origin
from proctor.model.typed import convert_to, make_msgpack_decoder

SWITCH = "PROCTOR_SUITE_CACHE"
_FORMAT = "1"
_LONGEST_TEXT = 100_000
_LARGEST_FILE = 1_000_000
_MOST_CASES = 500
_SLOTS = 512
"""The number of files; a suite replaces the one in its slot."""
_CODE = ("checks", "expressions", "formats", "matchers", "model", "patterns")
"""The packages that reading a suite depends on."""

_IN_CLAIM = ("check", "id", "label", "weight", "axis", "required", "advisory", "because", "depends_on", "when_missing")
_IN_CASE = ("id", "name", "description", "input", "tags", "context")
_IN_SUITE = ("name", "description", "settings")
"""Fields that are stored as they are."""


class _Place(msgspec.Struct, array_like=True, frozen=True):
    line: int | None
    column: int | None
    path: str


class _Claim(msgspec.Struct, array_like=True, frozen=True):
    check: str
    id: str | None
    label: str
    weight: float
    axis: str | None
    required: bool
    advisory: bool
    because: str
    depends_on: tuple[str, ...]
    when_missing: WhenMissing | None
    module: str
    spec: dict[str, Any]
    place: _Place


class _Case(msgspec.Struct, array_like=True, frozen=True):
    id: str
    name: str
    description: str
    input: str | None
    tags: dict[str, Any]
    context: dict[str, Any]
    claims: tuple[_Claim, ...]
    place: _Place


class Remembered(msgspec.Struct, array_like=True, frozen=True):
    """One suite as it is stored."""

    name: str
    description: str
    settings: dict[str, Any]
    key: str
    """Everything that its reading depends on."""
    plugin_free: tuple[tuple[str, int], ...]
    """Folders without plugins, and when they changed last."""
    file: str
    cases: tuple[_Case, ...]


_decode = make_msgpack_decoder(Remembered)
_encode = msgspec.msgpack.Encoder().encode


class SuiteCache:
    """The remembered form of one suite file, if there is a place for it."""

    def __init__(self, text: str, file: str, dialect: str | None, environment: Mapping[str, str]) -> None:
        self.text = text
        self._file = file
        self._folder = _find_folder(environment) if len(text) <= _LONGEST_TEXT and dialect in (None, "native") else None
        self._key = "\0".join((_FORMAT, *_list_changes(), dialect or "", file, text)) if self._folder else ""
        self._remembered = self._read()

    def recall(self) -> Suite | None:
        """Return the suite as it was read before; None if it was not, or if there are other checks than ours."""
        remembered = self._remembered
        if remembered is None:
            return None
        checks.PLUGIN_FREE.update(remembered.plugin_free)
        try:
            return None if checks.has_plugins() else _build(remembered)
        except (msgspec.MsgspecError, ImportError, LookupError, TypeError, ValueError):
            return None

    def remember(self, suite: Suite) -> None:
        """Store a suite, if it comes back as it is."""
        # A matrix can make very many cases of a short text; warnings are not stored.
        if self._folder is None or len(suite.cases) > _MOST_CASES or suite.warnings or checks.has_plugins():
            return
        try:
            remembered = self._describe(suite)
            written = _encode(remembered)
            if _is_same(_build(_decode.decode(written)), suite) and len(written) <= _LARGEST_FILE:
                self._write(self._folder, written)
        except (msgspec.MsgspecError, AttributeError, LookupError, OSError, TypeError, ValueError):
            return

    def _describe(self, suite: Suite) -> Remembered:
        cases = tuple(
            _Case(**_copy(case, _IN_CASE), claims=tuple(map(_describe_claim, case.assertions)), place=_describe_place(case.origin))
            for case in suite.cases
        )
        return Remembered(**_copy(suite, _IN_SUITE), key=self._key, plugin_free=tuple(checks.PLUGIN_FREE), file=self._file, cases=cases)

    def _read(self) -> Remembered | None:
        if self._folder is None:
            return None
        try:
            descriptor = os.open(self._locate(self._folder), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        with open(descriptor, "rb") as file:
            if not _is_private(os.fstat(descriptor), stat.S_ISREG):
                return None
            try:
                remembered: Remembered = _decode.decode(file.read(_LARGEST_FILE))
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                return None
        return remembered if remembered.key == self._key else None

    def _write(self, folder: str, written: bytes) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if not _is_private(os.stat(folder), stat.S_ISDIR):
            return
        place = self._locate(folder)
        partial = f"{place}.{os.getpid()}"
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(written)
        os.replace(partial, place)

    def _locate(self, folder: str) -> str:
        return os.path.join(folder, f"{sum(self._key.encode(errors='surrogatepass')) % _SLOTS:03x}")


def _find_folder(environment: Mapping[str, str]) -> str | None:
    """Return the folder of the cache; None if it is switched off, or files have no owners here."""
    if environment.get(SWITCH, "").strip().lower() in ("0", "false", "no", "off") or not hasattr(os, "getuid"):
        return None
    base = environment.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        home = environment.get("HOME", "")
        base = os.path.join(home, "Library/Caches" if sys.platform == "darwin" else ".cache") if os.path.isabs(home) else ""
    return os.path.join(base, "proctor", "suites") if base else None


def _is_private(found: os.stat_result, is_kind: Any) -> bool:
    return is_kind(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _list_changes() -> list[str]:
    """Return the version of this program, and the times at which the modules that read suites changed last."""
    from proctor import __version__  # the package itself imports this module

    here = os.path.join(os.path.dirname(__file__), "..", "..")
    files = (os.path.join(folder, name) for part in _CODE for folder, _, names in os.walk(os.path.join(here, part)) for name in names)
    return [__version__, *sorted(f"{file} {os.stat(file).st_mtime_ns}" for file in files if file.endswith(".py"))]


def _copy(value: msgspec.Struct, fields: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in fields}


def _describe_place(origin: Origin) -> _Place:
    return _Place(origin.line, origin.column, origin.path)


def _describe_claim(claim: Assertion) -> _Claim:
    owner = checks.default_registry().get(claim.check).owner
    spec = msgspec.to_builtins(claim.spec)
    return _Claim(**_copy(claim, _IN_CLAIM), module=owner, spec=spec, place=_describe_place(claim.origin))


def _build(remembered: Remembered) -> Suite:
    def find_origin(place: _Place) -> Origin:
        return Origin(file=remembered.file, line=place.line, column=place.column, path=place.path)

    def build_claim(claim: _Claim) -> Assertion:
        checks.MODULES.setdefault(claim.check, claim.module)
        spec = convert_to(claim.spec, checks.default_registry().get(claim.check).spec)
        return Assertion(**_copy(claim, _IN_CLAIM), spec=spec, origin=find_origin(claim.place))

    cases = tuple(
        Case(**_copy(case, _IN_CASE), assertions=tuple(map(build_claim, case.claims)), origin=find_origin(case.place))
        for case in remembered.cases
    )
    return Suite(**_copy(remembered, _IN_SUITE), path=remembered.file, cases=cases)


def _is_same(one: Suite, other: Suite) -> bool:
    """Return whether two suites are equal, also in the types that `==` does not distinguish."""
    return one == other and _encode(one) == _encode(other) and repr(one) == repr(other)
