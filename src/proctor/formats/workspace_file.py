"""The workspace file `proctor.yaml`: the targets, models and judge that suites share.

    targets:
      shop: {type: http, url: "http://127.0.0.1:9000/chat", auth: {type: bearer, token: "${SHOP_TOKEN}"}}
    default_target: shop
    models: {main: {provider: openai, model: some-model, api_key: "${KEY}"}}
    judge: {model: main}

A suite may have the same keys; its entries override those of the file by name. `${NAME}` in a text is replaced by that variable from a
mapping that the caller passes, `$${` is a literal `${`. References are resolved only in the entry that is used, so an unused target may
lack its secret. Types are checked before references are resolved, so that no message can show a secret.

The settings of a suite are plain values: their line numbers are looked up in its text only to report a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, reduce
from typing import Final, TypeVar, cast

import msgspec

from proctor.errors import InputError, SpecError
from proctor.formats.native.declared_evidence import read_declared
from proctor.formats.text.building import UNUSABLE, build_struct
from proctor.formats.text.documents import read_text
from proctor.formats.text.located import Located, Reading, locate_value
from proctor.formats.text.references import References, check_references
from proctor.model.cost import Price, PriceList
from proctor.model.evidence import Json
from proctor.model.json_values import is_finite
from proctor.model.lazy_pattern import lazy_pattern
from proctor.model.mapping import DeclaredEvidence
from proctor.model.problem import Origin, Problem
from proctor.model.show import nearest, shorten, show, suggest

# --- prices of models, from the workspace file or a separate file; not from a suite, which could make itself cheap

_DAY = lazy_pattern(r"\d{4}-\d{2}-\d{2}")


def read_prices(node: Located | None, reading: Reading) -> PriceList | None:
    """Return the prices under `prices:`, by model name or pattern; None if there are none."""
    if node is None or reading.require_object(node, "prices") is None:
        return None
    prices: dict[str, Price] = {}
    for name, member in node.members():
        price = build_struct(Price, member, reading, f"the price of {name!r}")
        if price is UNUSABLE:
            continue
        for field in ("input", "output", "cached_input", "cache_write"):
            value = getattr(price, field)
            if value is not None and (not is_finite(value) or value < 0):
                reading.error(member.get(field) or member, f"prices: {field} of {name!r} must be a number of at least 0")
        if price.per < 1:
            reading.error(member.get("per") or member, f"prices: per of {name!r} must be a whole number of at least 1")
        if price.as_of is not None and _DAY.fullmatch(price.as_of) is None:
            reading.error(member.get("as_of") or member, f"prices: as_of of {name!r} must be a day such as 2026-11-01")
        prices[name] = price
        first = next(iter(prices.values()))
        if price.currency != first.currency:
            message = f"prices: {name!r} is in {price.currency}, others are in {first.currency}"
            reading.error(member, message, hint="costs of one run are summed, so all prices are in one currency")
    return PriceList(prices) if prices else None


def read_price_file(text: str, *, file: str) -> PriceList:
    """Return the prices of a file: the entries themselves, or under `prices:` as in the workspace file. Raises `InputError`."""
    reading = Reading(file=file, text=text)
    document = read_text(text, file=file, reading=reading)
    inner = document.get("prices") if document is not None and document.is_object else None
    prices = read_prices(inner if inner is not None else document, reading)
    reading.finish()
    if prices is None:
        raise InputError(f"{file}: no prices in this file")
    return prices


# --- settings of custom checks, allowed only in the workspace file: their Python files and time limit

CHECK_TIMEOUT_S: Final = 10.0
"""Default limit in seconds of one custom check on one evidence."""
_MOST_S: Final = 86_400.0


class OwnCheckSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The `checks:` section of a workspace file."""

    files: tuple[str, ...] = ()
    """Python files with custom checks, relative to the folder of the workspace file."""

    timeout_s: float = CHECK_TIMEOUT_S
    """The time limit in seconds of one check on one evidence."""


def read_own_check_settings(node: Located | None, reading: Reading) -> OwnCheckSettings:
    """Return the `checks:` section: one file, a list of them, or `files` and `timeout_s`."""
    if node is None:
        return OwnCheckSettings()
    if not node.is_object:
        return OwnCheckSettings(files=_read_files(node, reading))
    reading.check_keys(node, ("files", "timeout_s"), "checks")
    files, limit = node.get("files"), node.get("timeout_s")
    seconds = reading.number(limit, "checks.timeout_s")
    if limit is not None and seconds is not None and not 0 < seconds <= _MOST_S:
        reading.error(limit, f"checks.timeout_s: expected seconds above 0 and at most {_MOST_S:,.0f}, found {seconds:g}")
    return OwnCheckSettings(
        files=_read_files(files, reading) if files is not None else (),
        timeout_s=float(seconds) if seconds is not None else CHECK_TIMEOUT_S,
    )


def _read_files(node: Located, reading: Reading) -> tuple[str, ...]:
    listed = [node] if isinstance(node.value, str) else reading.list_items(node, "checks")
    files = [(item, name) for item in listed if (name := reading.require_text(item, "checks")) is not None]
    for item, name in files:
        if not name.endswith(".py"):
            reading.error(item, f"checks: expected a Python file such as checks.py, found {name!r}", code="wrong_type")
    return tuple(name for _, name in files)


WORKSPACE_KEYS = ("targets", "default_target", "models", "judge")
"""Keys that a suite may have too."""
_FILE_KEYS = (*WORKSPACE_KEYS, "trust", "checks", "prices", "evidence")
"""Keys of the workspace file only: a suite must not decide whom to trust and which code to load."""

_ONLY_COMMENTS = lazy_pattern(r"\ufeff?(?:[ \t]*(?:#[^\r\n]*)?(?:\r\n?|\n|\Z))*")

_Settings = TypeVar("_Settings", bound=msgspec.Struct)


class Section:
    """One entry of a settings file, and its position."""

    def __init__(
        self,
        node: Located,
        *,
        file: str | None,
        text: str | None,
        trusted: bool,
        parse: Callable[[], tuple[Located, str] | None] = lambda: None,
        find: Callable[[Located], Located | None] = lambda document: document,
    ) -> None:
        """If the lines are unknown here, `parse` returns the document with its lines and its text, and `find` this entry in it."""
        self.node = node
        self.file = file
        self.trusted = trusted
        """Whether it comes from the workspace or from Python; a suite is untrusted."""
        self._text = text
        self._parse = parse
        self._find = find

    @classmethod
    def of(cls, value: Mapping[str, Json], *, file: str | None = None, path: str = "$", trusted: bool = True) -> Section:
        """Return an entry from a mapping, whose lines are unknown."""
        return cls(locate_value(value, path=path), file=file, text=None, trusted=trusted)

    def with_node(self, node: Located, find: Callable[[Located], Located | None]) -> Section:
        """Return another entry of the same file; `find` locates it below this one."""

        def find_below(document: Located) -> Located | None:
            outer = self._find(document)
            return None if outer is None else find(outer)

        return Section(node, file=self.file, text=self._text, trusted=self.trusted, parse=self._parse, find=find_below)

    def _placed(self) -> Section | None:
        """Return the same entry with its lines, if they are unknown here and can be found."""
        found = self._parse()
        node = None if found is None else self._find(found[0])
        return None if found is None or node is None else Section(node, file=self.file, text=found[1], trusted=self.trusted)

    def find_text(self, key: str) -> str | None:
        """Return the member `key` as written, if it is a text: the `model` of a target, for example."""
        member = self.node.get(key)
        return member.value if member is not None and isinstance(member.value, str) else None

    def build(self, struct: type[_Settings], references: References, what: str) -> _Settings:
        """Return the entry as a value of `struct`; raises `InputError` with every problem in it."""

        def read(node: Located, reading: Reading) -> Json:
            built = build_struct(struct, node, reading, what)
            check_references(node, reading, references)
            return built

        # Filled after all problems were reported: no message can contain the value of a variable.
        return references.fill(self._read(read))

    def check(self, struct: type[_Settings], what: str) -> _Settings:
        """Return the entry as written, with references unresolved; raises `InputError` with every problem in it."""
        return self._read(lambda node, reading: build_struct(struct, node, reading, what))

    def plain(self, references: References) -> Json:
        """Return the entry as plain JSON, references resolved; raises `InputError` if one cannot be resolved."""

        def read(node: Located, reading: Reading) -> Json:
            check_references(node, reading, references)
            return node.plain()

        return references.fill(self._read(read))

    def refusal_error(self, error: SpecError) -> InputError:
        """Return the error for an unusable entry of the right shape, with its position."""
        section = self._placed() or self
        reading = section._open_reading()
        reading.report_spec_error(section.node, error)
        return InputError(error.message, section._list_problems(reading))

    def unknown_member_error(self, key: str, message: str, known: Iterable[str], **more: Json) -> InputError:
        """Return the error for a member that names something unknown, with the known names."""
        section = self._placed() or self
        reading = section._open_reading()
        words = tuple(known)
        node = section.node if not section.node.is_object else section.node.get(key) or section.node
        close = nearest(str(node.value), words) if isinstance(node.value, str) else ()
        reading.error(node, message, nearest=close, expected="one of " + ", ".join(words) if words else None, **more)
        return InputError(message, section._list_problems(reading))

    def _read(self, read: Callable[[Located, Reading], Json]) -> Json:
        """Return what `read` makes of the entry; on problems it is repeated with known lines to locate them."""

        def attempt(section: Section) -> Json:
            reading = section._open_reading()
            try:
                value = read(section.node, reading)
            except SpecError as error:
                raise section.refusal_error(error) from None
            if reading.has_errors_since(0):
                problems = section._list_problems(reading)
                raise InputError(problems[0].message, problems)
            return value

        try:
            return attempt(self)
        except InputError:
            placed = self._placed()
            if placed is None:
                raise
        return attempt(placed)

    def _open_reading(self) -> Reading:
        return Reading(file=self.file, text=self._text or "")

    def _list_problems(self, reading: Reading) -> list[Problem]:
        ordered = sorted(reading.problems, key=lambda problem: (problem.origin.line or 0, problem.origin.column or 0))
        return ordered if self._text is not None else _drop_lines(ordered, self.file)


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of targets, models and the judge, not yet resolved or built."""

    file: str | None = None
    targets: dict[str, Section] = {}
    default_target: Section | None = None
    models: dict[str, Section] = {}
    judge: Section | None = None
    trust: tuple[str, ...] = ()
    """Patterns of files with trusted suites, relative to the folder of the workspace file: `*` stays inside a folder."""

    checks: OwnCheckSettings = OwnCheckSettings()
    """The files and the time limit of custom checks."""
    prices: PriceList | None = None
    evidence: DeclaredEvidence | None = None
    """How recorded evidence is read, for suites that do not declare it."""

    def lay_over(self, other: Workspace) -> Workspace:
        """Return both merged; this one takes precedence, except for entries that are equal in both."""
        return Workspace(
            file=other.file or self.file,
            targets=_lay_over(self.targets, other.targets),
            default_target=self.default_target or other.default_target,
            models=_lay_over(self.models, other.models),
            judge=self.judge or other.judge,
            # Never those of a suite, which is untrusted and would trust itself.
            trust=other.trust,
            checks=other.checks,
            prices=other.prices,
            evidence=other.evidence,
        )

    def find_target(self, name: str | None = None) -> tuple[str, Section]:
        """Return the target of that name, else the default one, else the only one; raises `InputError` if there is none."""
        known = ", ".join(self.targets)
        if name is None and self.default_target is not None:
            name = self.default_target.node.value
            if name not in self.targets:
                raise self.default_target.unknown_member_error(
                    "", f"default_target: there is no target {name!r}", self.targets, code="unknown_name"
                )
        if name is None and len(self.targets) == 1:
            name = next(iter(self.targets))
        if name is None:
            where = "`targets` in proctor.yaml or in the suite defines how the agent is reached"
            if known:
                raise InputError(f"several targets and no default_target; name one of {known}: {where}")
            hint = "without either, name it: module:function, a URL, or a command in quotes"
            raise InputError(f"no target is described: {where}; {hint}")
        if name not in self.targets:
            raise InputError(f"there is no target {name!r}{suggest(name, self.targets)}; known: {known or 'none'}")
        return name, self.targets[name]

    def find_model(self, name: str) -> Section:
        """Return the model of that name; raises `InputError` if there is none."""
        if name not in self.models:
            raise InputError(f"there is no model {name!r}{suggest(name, self.models)}; known: {', '.join(self.models) or 'none'}")
        return self.models[name]


def _lay_over(own: Mapping[str, Section], under: Mapping[str, Section]) -> dict[str, Section]:
    # An entry that is equal in both stays the workspace's, which is trusted, unlike a suite.
    same = {name for name, section in own.items() if name in under and under[name].node.plain() == section.node.plain()}
    return {**under, **{name: section for name, section in own.items() if name not in same}}


def read_workspace(text: str, *, file: str | None = None) -> Workspace:
    """Return the workspace file; raises `InputError` with every problem in it. A file of comments is an empty workspace."""
    workspace = Workspace(file=file)
    if _ONLY_COMMENTS.fullmatch(text):
        return workspace
    reading = Reading(file=file, text=text)
    document = read_text(text, file=file, reading=reading)
    if document is not None and document.value is not None:
        workspace = _read_file(document, reading, text=text)
    reading.finish()
    return workspace


def read_workspace_settings(settings: Mapping[str, Json], *, file: str, path: str = "$.tool.proctor") -> Workspace:
    """Return a workspace file that is not YAML, whose lines are unknown; raises `InputError` with every problem in it."""
    reading = Reading(file=file, text="")
    workspace = _read_file(locate_value(settings, path=path), reading, text=None)
    if reading.problems:
        problems = _drop_lines(reading.problems, file)
        raise InputError(problems[0].message, problems)
    return workspace


def _read_file(document: Located, reading: Reading, *, text: str | None) -> Workspace:
    workspace = _read(document, reading, text=text, trusted=True, keys=_FILE_KEYS)
    from proctor.patterns.globs import compile_glob  # most workspaces need no file of their own

    patterns: list[str] = []
    for item in reading.list_items(document.get("trust"), "trust"):
        if reading.require_text(item, "trust") is None:
            continue
        try:
            compile_glob(item.value)
        except SpecError as error:
            reading.error(item, f"trust: {error.message}")
        patterns.append(item.value)
    workspace = msgspec.structs.replace(
        workspace,
        trust=tuple(patterns),
        checks=read_own_check_settings(document.get("checks"), reading),
        prices=read_prices(document.get("prices"), reading),
        evidence=read_declared(document.get("evidence"), reading),
    )
    default = workspace.default_target
    if default is not None and default.node.value not in workspace.targets:
        reading.error(
            default.node,
            f"default_target: there is no target {default.node.value!r}",
            nearest=nearest(default.node.value, workspace.targets),
            expected="one of " + ", ".join(workspace.targets) if workspace.targets else None,
            code="unknown_name",
        )
    model = workspace.judge.node.get("model") if workspace.judge is not None else None
    for name_node in (model, *model.items()) if model is not None else ():
        # `provider/name` needs no entry.
        if isinstance(name_node.value, str) and workspace.models and name_node.value not in workspace.models and "/" not in name_node.value:
            message = f"judge: there is no model {name_node.value!r}"
            reading.error_unknown(name_node, message, name_node.value, workspace.models, code="unknown_name")
    return workspace


def build_workspace(
    settings: Mapping[str, Json], *, file: str | None = None, trusted: bool = False, text: Callable[[], str] | None = None
) -> Workspace:
    """Return the workspace from a suite's settings; other keys are ignored.

    `text` gives the text of the suite, for the lines of problems; it is not used if it has changed.
    """
    known = {key: settings[key] for key in WORKSPACE_KEYS if settings.get(key) is not None}

    # Several entries may have problems; the text is parsed again for all of them.
    @cache
    def parse() -> tuple[Located, str] | None:
        written = text() if text is not None else ""
        placed = Reading(file=file, text=written)
        document = read_text(written, file=file, reading=placed) if written else None
        if document is None or not document.is_object or placed.problems:
            return None
        members = {key: node for key, node in document.members() if key in known}
        document = Located(value=members, line=document.line, column=document.column, path="$", key_at=document.key_at)
        # If the file has changed since the suite was read, its lines would be wrong.
        return (document, written) if document.plain() == known else None

    def read(document: Located, written: str | None) -> tuple[Workspace, list[Problem]]:
        reading = Reading(file=file, text=written or "")
        return _read(document, reading, text=written, trusted=trusted, parse=parse), reading.problems

    workspace, problems = read(locate_value(known), None)
    if problems:
        placed = parse()
        problems = read(*placed)[1] if placed is not None else _drop_lines(problems, file)
        raise InputError(problems[0].message, problems)
    return workspace


def _read(
    document: Located,
    reading: Reading,
    *,
    text: str | None,
    trusted: bool,
    parse: Callable[[], tuple[Located, str] | None] = lambda: None,
    keys: tuple[str, ...] = WORKSPACE_KEYS,
) -> Workspace:
    if reading.require_object(document, "the workspace") is None:
        return Workspace()
    reading.check_keys(document, keys, "the workspace")

    def section(node: Located, *keys: str) -> Section:
        def find(root: Located) -> Located | None:
            return reduce(lambda place, key: None if place is None else place.get(key), keys, cast("Located | None", root))

        return Section(node, file=reading.file, text=text, trusted=trusted, parse=parse, find=find)

    def named(key: str, what: str) -> dict[str, Section]:
        holder = reading.require_object(document.get(key), key)
        members = holder.members() if holder is not None else ()
        objects = ((name, node) for name, node in members if reading.require_object(node, f"{what} {name!r}") is not None)
        return {name: section(node, key, name) for name, node in objects}

    default = document.get("default_target")
    judge = _read_judge(document.get("judge"), reading)
    return Workspace(
        file=reading.file,
        targets=named("targets", "target"),
        default_target=section(default, "default_target")
        if default is not None and reading.require_text(default, "default_target") is not None
        else None,
        models=named("models", "model"),
        judge=section(judge, "judge") if judge is not None else None,
    )


def _read_judge(node: Located | None, reading: Reading) -> Located | None:
    if node is None or not isinstance(node.value, str):
        return reading.require_object(node, "judge")
    # People usually write just the name of a model.
    message = f"judge: expected an object, found text {show(node.value, 60)}"
    reading.error(node, message, hint=f"a judge is named by its model: judge: {{model: {shorten(node.value, 60)}}}", code="wrong_type")
    return None


def _drop_lines(problems: Iterable[Problem], file: str | None) -> list[Problem]:
    return [msgspec.structs.replace(problem, origin=Origin(file=file, path=problem.origin.path), excerpt=None) for problem in problems]
