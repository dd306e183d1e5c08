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
from proctor.model.case import Assertion, Suite
from proctor.model.typed import convert_to, make_msgpack_decoder

SWITCH = "PROCTOR_SUITE_CACHE"
_FORMAT = "2"
_LONGEST_TEXT = 100_000
_LARGEST_FILE = 1_000_000
_MOST_CASES = 500
_SLOTS = 512
"""The number of files; a suite replaces the one in its slot."""
_CODE = ("checks", "expressions", "formats", "matchers", "model", "patterns")
"""The packages that reading a suite depends on."""


class Remembered(msgspec.Struct, array_like=True, frozen=True):
    """One suite as it is stored."""

    key: str
    """Everything that its reading depends on."""
    plugin_free: tuple[tuple[str, int], ...]
    """Folders without plugins, and when they changed last."""
    suite: Suite
    specs: tuple[tuple[str, dict[str, Any]], ...]
    """The module and the fields of the spec of each claim: those in the suite are decoded without fields."""


_decode = make_msgpack_decoder(Remembered)
_encode = msgspec.msgpack.Encoder().encode


class SuiteCache:
    """The remembered form of one suite file, if there is a place for it."""

    def __init__(self, text: str, file: str, dialect: str | None, environment: Mapping[str, str]) -> None:
        self.text = text
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
            claims = [claim for case in suite.cases for claim in case.assertions]
            specs = tuple((checks.default_registry().get(claim.check).owner, msgspec.to_builtins(claim.spec)) for claim in claims)
            written = _encode(Remembered(self._key, tuple(checks.PLUGIN_FREE), suite, specs))
            if _is_same(_build(_decode.decode(written)), suite) and len(written) <= _LARGEST_FILE:
                self._write(self._folder, written)
        except (msgspec.MsgspecError, AttributeError, LookupError, OSError, TypeError, ValueError):
            return

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


def _build(remembered: Remembered) -> Suite:
    specs = iter(remembered.specs)

    def build_claim(claim: Assertion) -> Assertion:
        module, fields = next(specs)
        checks.MODULES.setdefault(claim.check, module)
        return msgspec.structs.replace(claim, spec=convert_to(fields, checks.default_registry().get(claim.check).spec))

    cases = [msgspec.structs.replace(case, assertions=tuple(map(build_claim, case.assertions))) for case in remembered.suite.cases]
    return msgspec.structs.replace(remembered.suite, cases=tuple(cases), unselected=())


def _is_same(one: Suite, other: Suite) -> bool:
    """Return whether two suites are equal, also in the types that `==` does not distinguish."""
    return one == other and _encode(one) == _encode(other) and repr(one) == repr(other)
