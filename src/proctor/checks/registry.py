"""Checks by name: a decorator that only marks, and a registry that collects what was marked.

A check is a spec (a frozen `msgspec.Struct`) and a function next to it. The function has one of two shapes, and the
registry treats both alike:

    @check("response_contains", shorthand="text")
    def response_contains(spec: ResponseContains, evidence: Evidence) -> Verdict: ...

    @check("response_matches", shorthand="pattern")
    def response_matches(spec: ResponseMatches) -> Decide: ...        # prepares once per suite, decides per evidence

Preparing may raise `SpecError` naming the field that cannot be used; a reader turns it into a problem with a position.
Importing a check file has no side effect: the registry walks the subpackages, and other distributions join through the entry
point group `proctor.checks`, whose entries name a module (or a single marked function).
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, TypeVar

import msgspec

from proctor.checks.missing_evidence import EVERYTHING, Decide, Reads, ReadsOf, decide_with_caution, find_reads
from proctor.errors import InputError, SpecError
from proctor.model.evidence import Evidence
from proctor.model.show import nearest
from proctor.model.verdict import TextRange, Verdict

__all__ = ["CheckEntry", "Decide", "Reads", "Registry", "check", "collect", "default_registry", "iterate_entries", "read_entry"]

Locate = Callable[[Any, Evidence], Iterable[TextRange]]
"""Finds, for a spec, the characters of the evidence that decided: those it looks for, or those it forbids."""
LocateBy = Callable[[Any, Evidence, Verdict], Iterable[TextRange]]
"""Finds the same if it depends on the verdict: on its outcome, or on a judge's reason."""

F = TypeVar("F", bound=Callable[..., object])

ENTRY_POINTS = "proctor.checks"
PLUGIN_SWITCH = "PROCTOR_DISABLE_PLUGINS"
_OWN_ENTRY = "__proctor_entry__"
_FOLDER = os.path.dirname(__file__)
_WITHOUT_CHECKS = ("shared", "rubrics")


class CheckEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One registered check."""

    name: str
    spec: type[msgspec.Struct]
    prepare: Callable[[Any], Decide]
    shorthand: str | None
    """The field that a bare value sets in a native suite: `tool_called: search`."""
    judged: bool
    """Whether deciding may need a judge."""
    summary: str
    """The first paragraph of the function's docstring."""
    example: str
    """One assertion as a native suite writes it."""
    owner: str
    """The module it comes from."""
    reads: ReadsOf = EVERYTHING
    """The parts of the evidence it reads, and whether it claims presence or absence: see `missing_evidence.py`."""
    product: bool | Callable[[Any], bool] = False
    """Whether its cost is a product of spec and evidence sizes, for all or some specs: see `work`."""

    locate: Locate | None = None
    """Finds the characters that decided; called only to show a verdict, so deciding stays fast."""
    locate_by: LocateBy | None = None
    """Finds them with the verdict at hand; at most one of the two is given."""

    takes_whole: bool = False
    """Whether the shorthand also accepts an object: for a check that is identified by its name alone."""

    def multiplies_work(self, spec: msgspec.Struct) -> bool:
        """Return whether the steps of this spec must be counted."""
        return self.product if isinstance(self.product, bool) else self.product(spec)


def check(
    name: str,
    *,
    shorthand: str | None = None,
    judged: bool = False,
    example: str = "",
    reads: ReadsOf = EVERYTHING,
    product: bool | Callable[[Any], bool] = False,
    locate: Locate | None = None,
    locate_by: LocateBy | None = None,
) -> Callable[[F], F]:
    """Mark a function as the check called `name`.

    `example` is one assertion as a native suite writes it. `reads` declares which parts of the evidence the check reads and what
    kind of claim it makes; left out, a check gives `missing_evidence` wherever anything is unknown. `product` declares that its cost is a
    product of what the spec and the evidence hold, always or for some specs: then it has to count its steps (`work.spend`). `locate`
    finds the characters that decided, for reports that mark them; `locate_by` does so with the verdict at hand.
    """

    def mark(function: F) -> F:
        arguments = {
            "name": name,
            "shorthand": shorthand,
            "judged": judged,
            "example": example,
            "reads": reads,
            "product": product,
            "locate": locate,
            "locate_by": locate_by,
        }
        function.__proctor_check__ = arguments  # type: ignore[attr-defined]  # a function takes attributes
        return function

    return mark


Finder = Callable[[str | None], Iterable[CheckEntry]]
"""Returns the checks of the source that may define a name; with `None`, those of every source."""


class Registry:
    """The checks by name. A `finder` loads more when a name is still unknown."""

    def __init__(self, entries: Iterable[CheckEntry] = (), finder: Finder | None = None) -> None:
        self._entries: dict[str, CheckEntry] = {}
        self._finder = finder
        self.looked_in = ""
        """Other sources that were searched, for the message about an unknown check."""
        for entry in entries:
            self.add(entry)

    def _load(self, name: str | None) -> None:
        """Load the files that may define `name`, or all files if it is None."""
        if self._finder is None:
            return
        found = self._finder(name)
        if name is None:
            # Everything is loaded now; do not search the files again for an unknown name.
            self._finder = None
        for entry in found:
            known = self._entries.get(entry.name)
            # The same file may be loaded again when all checks are listed.
            if known is None or known.owner != entry.owner:
                self.add(entry)

    def add(self, entry: CheckEntry) -> None:
        """Register one check; a duplicate name is an error that names both owners."""
        known = self._entries.get(entry.name)
        if known is not None:
            raise InputError(f"check {entry.name!r} is defined twice: in {known.owner} and in {entry.owner}")
        self._entries[entry.name] = entry

    def __contains__(self, name: object) -> bool:
        if name not in self._entries and isinstance(name, str):
            self._load(name)
        return name in self._entries

    def __iter__(self) -> Iterator[CheckEntry]:
        self._load(None)
        return iter([self._entries[name] for name in sorted(self._entries)])

    def list_names(self) -> tuple[str, ...]:
        """Return all names, sorted."""
        self._load(None)
        return tuple(sorted(self._entries))

    def get(self, name: str) -> CheckEntry:
        """Return the check called `name`; an unknown name raises `SpecError` with the nearest ones."""
        entry = self._entries.get(name)
        if entry is not None:
            return entry
        if name in self:
            return self._entries[name]
        raise SpecError(
            f"unknown check {name!r}",
            field="check",
            nearest=nearest(name, self.list_names()),
            hint=f"`proctor describe checks` lists them all{self.looked_in}",
        )

    def get_for(self, name: str, spec: msgspec.Struct) -> CheckEntry:
        """Return the check of a spec: a custom check is identified by its spec, any other by its name."""
        own: CheckEntry | None = getattr(type(spec), _OWN_ENTRY, None)
        return own if own is not None else self.get(name)

    def prepare(self, name: str, spec: msgspec.Struct) -> Decide:
        """Return the function that decides `spec` on evidence. Raises `SpecError` if the spec is invalid."""
        entry = self.get_for(name, spec)
        return decide_with_caution(entry.prepare(spec), find_reads(entry.reads, spec))


def set_own_entry(spec: type[msgspec.Struct], entry: CheckEntry) -> None:
    """Assign specs of this type to `entry` in every registry."""
    setattr(spec, _OWN_ENTRY, entry)


def iterate_entries(module: ModuleType) -> Iterator[CheckEntry]:
    """Yield the marked functions that `module` itself defines, in order of definition."""
    for value in list(vars(module).values()):
        if getattr(value, "__proctor_check__", None) is not None and getattr(value, "__module__", None) == module.__name__:
            yield read_entry(value)


def read_entry(function: Callable[..., Any]) -> CheckEntry:
    """Read one marked function."""
    mark: dict[str, Any] = getattr(function, "__proctor_check__", {})
    parameters = function.__code__.co_varnames[: function.__code__.co_argcount]
    annotation = function.__annotations__.get("spec")
    spec = function.__globals__.get(annotation) if isinstance(annotation, str) else annotation
    if not (isinstance(spec, type) and issubclass(spec, msgspec.Struct)) or parameters not in (("spec",), ("spec", "evidence")):
        raise InputError(
            f"{function.__module__}.{function.__name__} is marked as check {mark['name']!r} but is not a function of "
            "(spec: SomeStruct) or (spec: SomeStruct, evidence: Evidence)"
        )
    prepare = function if len(parameters) == 1 else lambda spec: functools.partial(function, spec)
    summary = " ".join((function.__doc__ or spec.__doc__ or "").strip().split("\n\n")[0].split())
    return CheckEntry(**mark, spec=spec, prepare=prepare, summary=summary, owner=function.__module__)


def iterate_builtin_modules() -> Iterator[ModuleType]:
    """Yield our own check modules in sorted order."""
    import pkgutil  # most runs load only the checks that they name

    package = importlib.import_module("proctor.checks")
    for info in pkgutil.walk_packages(package.__path__, "proctor.checks."):
        _, _, subpackage, *module = info.name.split(".")
        if module and subpackage not in _WITHOUT_CHECKS and not module[0].startswith("_"):
            yield importlib.import_module(info.name)


MODULES: dict[str, str] = {}
"""Our modules by check, as far as they are known from an earlier run; a wrong one does no harm."""


def find_builtin_module(name: str) -> ModuleType | None:
    """Return our module that defines the check `name`, found by its text.

    Loading every module to use three checks would dominate the cost of a small run. Without source files nothing is found, and the caller
    loads everything.
    """
    if (known := MODULES.get(name, "")).startswith("proctor.checks."):
        try:
            module = importlib.import_module(known)
        except ImportError:  # it was renamed
            module = None
        if module is not None and any(entry.name == name for entry in iterate_entries(module)):
            return module
    mark = re.compile(rf'@check\(\s*"{re.escape(name)}"'.encode())
    for subpackage in os.listdir(_FOLDER):
        if subpackage in _WITHOUT_CHECKS or "." in subpackage or subpackage.startswith("_"):
            continue
        for file in os.listdir(os.path.join(_FOLDER, subpackage)):
            if file.endswith(".py") and not file.startswith("_"):
                with open(os.path.join(_FOLDER, subpackage, file), "rb") as source:
                    if mark.search(source.read()):
                        return importlib.import_module(f"proctor.checks.{subpackage}.{file.removesuffix('.py')}")
    return None


def collect(modules: Iterable[ModuleType]) -> Registry:
    """Return a registry of everything marked in `modules`."""
    return Registry(entry for module in modules for entry in iterate_entries(module))


@functools.cache
def default_registry() -> Registry:
    """Return our own checks and those of installed plugins; modules are loaded when first used."""
    registry = Registry(finder=_find_builtin)
    for entry in iterate_plugin_entries():
        # The lookup loads a built-in check with that name, and adding then reports both owners: a plugin cannot silently replace it.
        _ = entry.name in registry
        registry.add(entry)
    return registry


def _find_builtin(name: str | None) -> Iterable[CheckEntry]:
    module = find_builtin_module(name) if name is not None else None
    if module is not None:
        return iterate_entries(module)
    return (entry for module in iterate_builtin_modules() for entry in iterate_entries(module))


def iterate_plugin_entries() -> Iterator[CheckEntry]:
    """Yield the checks that other distributions offer under the entry point group `proctor.checks`."""
    # Plugins are third-party code; this switch disables them.
    if not has_plugins():
        return
    from importlib.metadata import entry_points  # slow to import; needed only when a plugin is installed

    for point in entry_points(group=ENTRY_POINTS):
        loaded = point.load()
        if isinstance(loaded, ModuleType):
            yield from iterate_entries(loaded)
        else:
            yield read_entry(loaded)


def has_plugins() -> bool:
    """Return whether other distributions may offer checks."""
    return not os.environ.get(PLUGIN_SWITCH) and _some_distribution_mentions(ENTRY_POINTS)


PLUGIN_FREE: set[tuple[str, int]] = set()
"""Folders of distributions that offer no checks, and when they changed last."""


def _some_distribution_mentions(group: str) -> bool:
    """Return whether any installed distribution declares the group.

    Importing `importlib.metadata` costs more than a small check run, so the entry point files are searched as text first.
    """
    wanted = f"[{group}]".encode()
    for folder in sys.path:
        try:
            state = (folder, os.stat(folder or ".").st_mtime_ns)
            if state in PLUGIN_FREE:
                continue
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                try:
                    with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                        if wanted in file.read(1_000_000):
                            return True
                except OSError:
                    continue
        # Installing a distribution changes the time of its folder.
        if os.path.isabs(folder):
            PLUGIN_FREE.add(state)
    return False
