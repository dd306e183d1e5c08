"""MCPJam documents as suites.

Two shapes are read. A *suite file* (`schemaVersion: "1"`) is closed: an unknown key is an error. A *list of cases* (bare, or
under `cases` or `tests`) has the fields of the SDK's tests: `expectedToolCalls` with `matchOptions`, `predicates` (also
called `checks` or `assertions`, also as `{mode, list}`), and `prompt`, `query` or `steps`. The retired command line wrote
`expectedTools`.

* Match options merge field by field: suite, then case.
* Expected calls become one assertion `tool_calls_match`, which is negated in a negative case. Without expected calls and limits
  there is none, as in MCPJam.
* Everything that only a live run needs (model, servers, direct calls) is stored in `settings` as written.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from proctor.checks.tools.tool_order import ExpectedCall, ToolCallsMatch, ToolsCalled
from proctor.formats.mcpjam.predicates import ARGUMENT_MATCHING, PREDICATES, read_predicate, read_word, refuse_empty
from proctor.formats.native.drafting import draft_assertion, make_slug, make_unique
from proctor.formats.text.located import Located, Reading
from proctor.model.case import Assertion, Case, Scoring, Skip, Suite, Turn
from proctor.model.evidence import Json
from proctor.model.show import show

# --- the steps of an MCPJam case: prompts, direct tool calls, assertions, and interactions with widgets

MOST_STEPS = 200
"""MCPJam's own limit, per case."""
_MOST_RENDER_MS = 120_000
"""MCPJam's own limit, in milliseconds."""

_STEP_KEYS = {
    "prompt": ("id", "kind", "prompt"),
    "toolCall": ("id", "kind", "serverId", "serverName", "toolName", "arguments", "renderTimeoutMs"),
    "interact": ("id", "kind", "toolName", "action"),
    "assert": ("id", "kind", "assertion"),
}
_WIDGET_ASSERTIONS = {
    "textVisible": ("toolName", "text"),
    "elementVisible": ("toolName", "target"),
    "elementHidden": ("toolName", "target"),
    "inputValue": ("toolName", "target", "equals"),
    "widgetToolCalled": ("toolName", "calledToolName"),
}
_ACTIONS = ("click", "type", "key", "scroll", "wait")


class Steps:
    """The steps of one case, read in order."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._ids: dict[str, Located] = {}
        self._asserts: list[tuple[Located, int]] = []
        self.turns: list[Turn] = []
        self.direct_calls: list[Json] = []
        self.unsupported: str | None = None
        """The first step that recorded evidence cannot show."""

    def read(self, node: Located) -> None:
        """Read the list; problems go to the reading."""
        reading = self._reading
        if reading.require_list(node, "steps") is None:
            return
        if not 1 <= len(node.value) <= MOST_STEPS:
            reading.error(node, f"steps: expected 1 to {MOST_STEPS} steps, found {len(node.value)}", code="wrong_size")
        for step in node.items():
            self._step(step)

    def list_assertions(self) -> list[Assertion]:
        """Return the assertions among the steps, each with its turn."""
        several = len(self.turns) > 1
        # A step before the first prompt is about the run as well.
        read = (read_predicate(self._reading, node, turn=turn if several and turn >= 0 else None) for node, turn in self._asserts)
        return list(filter(None, read))

    def _step(self, node: Located) -> None:
        reading = self._reading
        if reading.require_object(node, "a step") is None:
            return
        kind = reading.require_choice(
            node, "kind", _STEP_KEYS, "a step", lambda word: f"unknown kind of step {show(word, 60)}", code="unknown_step"
        )
        if kind is None:
            return
        reading.check_keys(node, _STEP_KEYS[kind], f"a {kind} step")
        self._read_id(node, kind)
        match kind:
            case "prompt":
                text = reading.need_text(node, "prompt", "a prompt step")
                if text is not None:
                    self.turns.append(Turn(input=text, origin=reading.origin(node)))
            case "toolCall":
                self._read_tool_call(node)
            case "interact":
                reading.need_text(node, "toolName", "an interact step")
                action = reading.require_object(reading.require_member(node, "action", "an interact step"), "'action'")
                if action is not None:
                    self._read_kind(action, _ACTIONS, "action")
                self._mark_unsupported("an interact step drives a widget")
            case _:
                self._read_assert(node)

    def _read_id(self, node: Located, kind: str) -> None:
        id_node = self._reading.require_member(node, "id", f"a {kind} step")
        value = self._reading.require_text(id_node, "the id of a step")
        if value is None or id_node is None:
            return
        if value in self._ids:
            first = self._ids[value]
            message = f"duplicate step id {show(value, 80)}"
            hint = f"first used in line {first.line}; step ids are unique in a case"
            self._reading.error(id_node, message, hint=hint, code="duplicate_id")
        self._ids.setdefault(value, id_node)

    def _read_tool_call(self, node: Located) -> None:
        reading = self._reading
        what = "a toolCall step"
        server, tool = reading.need_text(node, "serverName", what), reading.need_text(node, "toolName", what)
        arguments = reading.require_object(reading.require_member(node, "arguments", what), "'arguments'")
        limit = node.get("renderTimeoutMs")
        wait = reading.require_integer(limit, "'renderTimeoutMs'", at_least=1)
        if wait is not None and limit is not None and wait > _MOST_RENDER_MS:
            reading.error(limit, f"'renderTimeoutMs': expected at most {_MOST_RENDER_MS}, found {wait}")
        if server is None or tool is None or arguments is None:
            return
        # `after_prompts` preserves the order: a live run makes the call between the same two prompts.
        call: dict[str, Json] = {"server": server, "tool": tool, "arguments": arguments.plain(), "after_prompts": len(self.turns)}
        names = {"id": "id", "serverId": "server_id", "renderTimeoutMs": "render_timeout_ms"}
        self.direct_calls.append(call | {name: member.plain() for key, name in names.items() if (member := node.get(key)) is not None})

    def _read_assert(self, node: Located) -> None:
        reading = self._reading
        assertion = reading.require_object(reading.require_member(node, "assertion", "an assert step"), "'assertion'")
        if assertion is None:
            return
        widget = assertion.get("kind")
        if widget is None:
            self._asserts.append((assertion, len(self.turns) - 1))
            return
        if assertion.get("type") is not None:
            reading.error_at_key(assertion, "kind", "an assertion has 'type' (a predicate) or 'kind' (a widget assertion), not both")
            return
        kind = self._read_kind(assertion, _WIDGET_ASSERTIONS, "widget assertion")
        if kind is not None:
            fields = _WIDGET_ASSERTIONS[kind]
            reading.check_keys(assertion, ("kind", *fields), kind)
            for key in fields:
                reading.require_member(assertion, key, kind)
            self._mark_unsupported(f"{kind} looks at a widget")

    def _read_kind(self, node: Located, words: Collection[str], what: str) -> str | None:
        return self._reading.require_choice(node, "kind", words, what, lambda word: f"unknown {what} {show(word, 60)}", code="unknown_step")

    def _mark_unsupported(self, why: str) -> None:
        self.unsupported = self.unsupported or f"{why}, which recorded evidence cannot show"


# --- the calls an MCPJam case expects, and how they are compared

_ORDERS = ("ignore", "strict", "superset")
_MATCH_KEYS = ("toolCallOrder", "argumentMatching", "maxExtraToolCalls", "allowExtraToolCalls")
_NAME_KEYS = ("toolName", "name", "tool")
_ARGUMENT_KEYS = ("arguments", "args", "input")


def read_match_options(reading: Reading, node: Located | None) -> dict[str, Json]:
    """Return the options that are set, in the names of our spec."""
    if node is None or reading.require_object(node, "'matchOptions'") is None:
        return {}
    reading.check_keys(node, _MATCH_KEYS, "'matchOptions'")
    words = {"order": ("toolCallOrder", _ORDERS), "arguments": ("argumentMatching", ARGUMENT_MATCHING)}
    options_set = {field: read_word(reading, node.get(key), known, f"{key!r}") for field, (key, known) in words.items()}
    read: dict[str, Json] = {field: word for field, word in options_set.items() if word is not None}
    allow = reading.require_boolean(node.get("allowExtraToolCalls"), "'allowExtraToolCalls'")
    if allow is not None:
        read["max_extra"] = None if allow else 0
    limit = node.get("maxExtraToolCalls")
    if limit is not None:
        # The newer option takes precedence, even if it is null, which means any number.
        read["max_extra"] = None if limit.value is None else reading.require_integer(limit, "'maxExtraToolCalls'", at_least=0)
    return read


def read_expected_calls(reading: Reading, node: Located, negative: bool | None, options: dict[str, Json]) -> list[Assertion]:
    """Return the assertions about expected calls; `options` are those of the suite."""
    options = {**options, **read_match_options(reading, node.get("matchOptions"))}
    call_list = reading.require_list(node.get("expectedToolCalls"), "'expectedToolCalls'")
    calls = list(filter(None, (_call(reading, entry) for entry in call_list.items()))) if call_list is not None else []
    assertions: list[Assertion] = []
    # The retired form: names only, any order, each at least once.
    tools = node.get("expectedTools")
    names = reading.list_texts(tools, "'expectedTools'", "an expected tool")
    if names and tools is not None:
        label = f"expected tools · {', '.join(names)}"
        assertions.append(draft_assertion(reading, tools, "tools_called", ToolsCalled(names=tuple(names)), label=label))
    at = call_list if call_list is not None else node
    if negative:
        if calls or assertions:
            message = "a negative case expects no tool call at all; these expected calls are ignored"
            reading.warn(at, message, hint="leave them out, or leave out 'isNegativeTest'", code="contradiction")
        where = node.get("isNegativeTest") or node
        return [draft_assertion(reading, where, "tool_calls_match", ToolCallsMatch(negative=True), label="no tool is called")]
    positive_only = negative is False and call_list is not None and not calls
    if calls or positive_only or (call_list is not None and options.get("max_extra") is not None):
        spec = ToolCallsMatch(calls=tuple(calls), positive_only=positive_only, **options)
        label = f"expected calls · {', '.join(call.name for call in calls)}" if calls else "expected calls"
        assertions.insert(0, draft_assertion(reading, at, "tool_calls_match", spec, label=label))
    return assertions


def _call(reading: Reading, node: Located) -> ExpectedCall | None:
    if isinstance(node.value, str) and node.value:
        return ExpectedCall(name=node.value)
    if reading.require_object(node, "an expected call") is None:
        return None
    reading.check_keys(node, (*_NAME_KEYS, *_ARGUMENT_KEYS), "an expected call")
    name_node = next((member for key in _NAME_KEYS if (member := node.get(key)) is not None), None)
    if name_node is None:
        reading.error(node, "an expected call needs 'toolName'", code="missing_key")
        return None
    name = refuse_empty(reading, name_node, "'toolName'")
    args = next((member for key in _ARGUMENT_KEYS if (member := node.get(key)) is not None), None)
    arguments = reading.require_object(args, "'arguments'") if args is not None and args.value is not None else None
    return None if name is None else ExpectedCall(name=name, arguments=arguments.plain() if arguments is not None else {})


_MOST_CASES = 500
_MOST_ASSERTIONS = 50
"""MCPJam's own limit, per case."""
_MOST_TITLE = 200
_MOST_REPETITIONS = 100

_GATE_KEYS = ("predicates", "checks", "assertions")
_LIVE_KEYS = (
    "model",
    "models",
    "provider",
    "selectedServers",
    "servers",
    "advancedConfig",
    "expectedOutput",
    "import",
    "externalCaseId",
    "caseId",
)
_FILE_KEYS = ("schemaVersion", "mode", "reportingMode", "suite", "target", "defaults", "provenance", "cases")
_FILE_CASE_KEYS = (
    "id", "title", "steps", "assertions", "expectedOutput", "isNegativeTest", "model", "repetitions", "passThreshold", "disabled", "import",
)  # fmt: skip
_LIST_KEYS = ("name", "title", "description", "cases", "tests", "matchOptions", "defaults", *_GATE_KEYS)
_LIST_CASE_KEYS = (
    "id", "name", "title", "description", "prompt", "query", "steps", "expectedToolCalls", "expectedTools", "matchOptions", *_GATE_KEYS,
    "isNegativeTest", "repetitions", "iterations", "runs", "passThreshold", "disabled", "tags", *_LIVE_KEYS,
)  # fmt: skip
_CASE_KEYS = ("expectedToolCalls", "expectedTools", "matchOptions", "predicates", "isNegativeTest")
_DEFAULT_KEYS = ("model", "provider", "repetitions", "passThreshold", "validity", "toolPolicy", "captureLevel")
_IMPORT_STATUSES = ("exact", "approximated", "unsupported", "unresolved")


def sniff(document: Located) -> bool:
    """Return whether this looks like an MCPJam document."""
    if document.is_object:
        if document.get("proctor") is not None:
            return False
        if document.get("schemaVersion") is not None and document.get("cases") is not None:
            return True
    listed = document if document.is_list else document.get("cases") or document.get("tests")
    return any(map(_is_case, [document] if listed is None else listed.items()))


def _is_case(case: Located) -> bool:
    if any(case.get(key) is not None for key in _CASE_KEYS):
        return True
    for key in ("steps", *_GATE_KEYS):
        member = case.get(key)
        # An override of a case is an object, `{mode, list}`, with the predicates one level deeper.
        inner = None if member is None else member.get("list") or member
        for entry in inner.items() if inner is not None else ():
            # Steps have `kind`; predicates have a `type` that MCPJam defines.
            kind, type_node = entry.get("kind"), entry.get("type")
            if key == "steps" and kind is not None and kind.value in ("prompt", "toolCall", "interact", "assert"):
                return True
            # An assertion with a `target` belongs to Mibo, whatever its type.
            predicate = type_node.value if key != "steps" and type_node is not None and entry.get("target") is None else None
            if isinstance(predicate, str) and predicate in PREDICATES:
                return True
    return False


def read(document: Located, reading: Reading, *, name: str) -> Suite:
    """Return the suite in the document; problems go to the reading."""
    if document.get("schemaVersion") is not None:
        return _read_file(document, reading, name)
    listed: Located | None = document
    suite: Located | None = None
    title, description = None, None
    if document.get("cases") is not None or document.get("tests") is not None:
        suite = document
        reading.check_keys(document, _LIST_KEYS, "an MCPJam document")
        if document.get("cases") is not None and document.get("tests") is not None:
            reading.error_at_key(document, "tests", "give 'cases' or 'tests', not both")
        listed = document.get("cases") or document.get("tests")
        title = reading.require_text(document.get("name") or document.get("title"), "'name'")
        description = reading.require_text(document.get("description"), "'description'")
    elif document.is_object:
        listed = Located(value=[document], line=document.line, column=document.column, path=document.path)
    cases = _Cases(reading, suite).read(listed)
    return Suite(name=title or name, dialect="mcpjam", description=description or "", cases=cases)


def _read_file(document: Located, reading: Reading, name: str) -> Suite:
    reading.check_keys(document, _FILE_KEYS, "an MCPJam suite file")
    for key, only in (("schemaVersion", "1"), ("mode", "agentWorkflow"), ("reportingMode", "standard")):
        entry = document.get(key)
        if entry is not None and entry.value != only:
            reading.error(entry, f"{key}: expected the text {show(only)}, found {entry.kind} {show(entry.plain(), 60)}", code="wrong_value")
    for key in ("mode", "reportingMode", "suite", "target", "defaults"):
        if document.get(key) is None:
            # Only a warning: none of these affects a case on recorded evidence.
            reading.warn(document, f"MCPJam itself refuses a suite file without {key!r}", code="missing_key")
    title, description = None, None
    head = reading.require_object(document.get("suite"), "suite")
    if head is not None:
        reading.check_keys(head, ("id", "name", "description"), "suite")
        reading.need_text(head, "id", "suite", "suite 'id'")
        title = _read_title(reading, reading.require_member(head, "name", "suite"), "suite 'name'")
        description = reading.require_text(head.get("description"), "suite 'description'")
    if (defaults := document.get("defaults")) is not None:
        reading.check_keys(defaults, _DEFAULT_KEYS, "defaults")
    _read_target(document, reading)
    cases = _Cases(reading, document, closed=True)
    return Suite(
        name=title or name,
        dialect="mcpjam",
        description=description or "",
        cases=cases.read(reading.require_member(document, "cases", "an MCPJam suite file")),
        settings={key: node.plain() for key, node in document.members() if key != "cases"},
    )


def _read_target(document: Located, reading: Reading) -> None:
    target = reading.require_object(document.get("target"), "target")
    if target is None:
        return
    reading.check_keys(target, ("servers", "environment"), "target")
    servers = reading.require_list(reading.require_member(target, "servers", "target"), "target 'servers'")
    if servers is not None and not servers.value:
        reading.error(servers, "target 'servers': expected at least one server, found none", code="wrong_size")
    for server in reading.list_items(servers, "target 'servers'"):
        if reading.require_object(server, "a server") is not None:
            reading.check_keys(server, ("name", "id"), "a server")
            reading.need_text(server, "name", "a server", "server 'name'")


def _read_title(reading: Reading, node: Located | None, what: str) -> str | None:
    value = reading.require_text(node, what)
    if value is not None and node is not None and len(value) > _MOST_TITLE:
        reading.error(node, f"{what}: expected at most {_MOST_TITLE} characters, found {len(value)}", code="wrong_size")
    return value


def _find_gate(node: Located, reading: Reading) -> Located | None:
    gate_keys = [key for key in _GATE_KEYS if node.get(key) is not None]
    for key in gate_keys[1:]:
        reading.error_at_key(node, key, f"{gate_keys[0]!r} and {key!r} are two names for the same list; give one")
    return node.get(gate_keys[0]) if gate_keys else None


class _Cases:
    def __init__(self, reading: Reading, suite: Located | None, *, closed: bool = False) -> None:
        self._reading = reading
        self._closed = closed
        """Whether this is a suite file, which is stricter."""
        self._keys = _FILE_CASE_KEYS if closed else _LIST_CASE_KEYS
        open_suite = None if closed else suite
        self._options = read_match_options(reading, None if open_suite is None else open_suite.get("matchOptions"))
        self._gate = None if open_suite is None else _find_gate(open_suite, reading)
        self._has_provenance = suite is not None and suite.get("provenance") is not None
        self._ids: dict[str, Located] = {}
        defaults = None if suite is None else reading.require_object(suite.get("defaults"), "defaults")
        self._repetitions = self._count(defaults, ("repetitions",))
        self._threshold = self._read_share(defaults)

    def read(self, node: Located | None) -> tuple[Case, ...]:
        reading = self._reading
        if node is None or reading.require_list(node, "cases") is None:
            return ()
        if not node.value:
            reading.error(node, "cases: expected at least one case, found none", code="wrong_size")
        if self._closed and len(node.value) > _MOST_CASES:
            reading.error(node, f"cases: expected at most {_MOST_CASES}, found {len(node.value)}", code="wrong_size")
        return tuple(filter(None, map(self._read_case, node.items())))

    def _read_case(self, node: Located) -> Case | None:
        reading = self._reading
        if reading.require_object(node, "a case") is None:
            return None
        reading.check_keys(node, self._keys, "a case")
        steps = Steps(reading)
        written = reading.require_member(node, "steps", "a case") if self._closed else node.get("steps")
        if written is not None:
            steps.read(written)
        prompt_keys = [key for key in ("steps", "prompt", "query") if node.get(key) is not None]
        for key in prompt_keys[1:]:
            reading.error_at_key(node, key, f"a case has {prompt_keys[0]!r} or {key!r}, not both")
        prompt = reading.require_text(node.get("prompt") or node.get("query"), "'prompt'")
        name = _read_title(reading, node.get("title") or node.get("name"), "'title'") or ""
        negative = reading.require_boolean(node.get("isNegativeTest"), "'isNegativeTest'")
        assertions = [*read_expected_calls(reading, node, negative, self._options), *steps.list_assertions(), *self._read_predicates(node)]
        self._read_import(node)
        skip = None if steps.unsupported is None else Skip(code="unsupported_step", reason=steps.unsupported)
        if reading.require_boolean(node.get("disabled"), "'disabled'"):
            skip = Skip(code="disabled", reason="the case is disabled")
        # A single prompt step is an ordinary input, so that its assertions are about the run and match evidence without turns.
        only = steps.turns[0].input if len(steps.turns) == 1 else prompt
        return Case(
            id=self._make_id(node, name, only),
            name=name,
            description=reading.require_text(node.get("description"), "'description'") or "",
            input=only,
            turns=tuple(steps.turns) if len(steps.turns) > 1 else (),
            tags=self._read_tags(node),
            assertions=tuple(assertions),
            scoring=Scoring(mode="boolean", when_empty="skip"),
            skip=skip,
            repetitions=self._count(node, ("repetitions", "iterations", "runs")) or self._repetitions,
            pass_threshold=self._read_share(node, self._threshold),
            settings={
                **{key: member.plain() for key in _LIVE_KEYS if (member := node.get(key)) is not None},
                **({"direct_calls": steps.direct_calls} if steps.direct_calls else {}),
            },
            origin=reading.origin(node),
        )

    def _make_id(self, node: Located, name: str, prompt: str | None) -> str:
        reading = self._reading
        entry = reading.require_member(node, "id", "a case") if self._closed else node.get("id")
        value = reading.require_text(entry, "'id'")
        if value is None or entry is None:
            value, entry = make_unique(name or make_slug(prompt or "case"), self._ids), node
        elif value == "":
            reading.error(entry, "'id': expected text of at least one character", code="wrong_value")
        elif value in self._ids:
            first = self._ids[value].line
            reading.error(
                entry, f"duplicate case id {show(value, 80)}", hint=f"first used in line {first}; case ids are unique", code="duplicate_id"
            )
        self._ids.setdefault(value, entry)
        return value

    def _read_tags(self, node: Located) -> dict[str, Json]:
        tags = node.get("tags")
        if tags is not None and tags.is_list:
            return {str(tag): True for tag in cast("list[Json]", tags.plain())}
        tag_object = self._reading.require_object(tags, "'tags'")
        return tag_object.plain() if tag_object is not None else {}

    def _read_import(self, node: Located) -> None:
        import_node = self._reading.require_object(node.get("import"), "'import'")
        if import_node is None:
            return
        self._reading.check_keys(import_node, ("status", "sourceCaseKey", "note"), "'import'")
        read_word(self._reading, self._reading.require_member(import_node, "status", "'import'"), _IMPORT_STATUSES, "'status'")
        if self._closed and not self._has_provenance:
            self._reading.error_at_key(node, "import", "'import' needs 'provenance' at the top of the file", code="missing_key")

    def _count(self, node: Located | None, keys: tuple[str, ...]) -> int | None:
        for key in keys:
            member = None if node is None else node.get(key)
            value = self._reading.require_integer(member, f"{key!r}", at_least=1)
            if value is not None and member is not None:
                if value > _MOST_REPETITIONS:
                    self._reading.error(member, f"{key!r}: expected at most {_MOST_REPETITIONS}, found {value}", code="wrong_value")
                return value
        return None

    def _read_share(self, node: Located | None, otherwise: float | None = None) -> float | None:
        member = None if node is None else node.get("passThreshold")
        value = self._reading.number(member, "'passThreshold'")
        if value is None or member is None:
            return otherwise
        if not 0 <= value <= 1:
            self._reading.error(member, f"'passThreshold': expected a number from 0 to 1, found {show(value)}", code="wrong_value")
            return otherwise
        return float(value)

    def _read_predicates(self, node: Located) -> list[Assertion]:
        reading = self._reading
        own = _find_gate(node, reading)
        # A bare list adds to the predicates of the suite; only an override with a mode can replace them.
        mode = "extend"
        if own is not None and own.is_object:
            reading.check_keys(own, ("mode", "list"), "the predicates of a case")
            mode = (
                read_word(reading, reading.require_member(own, "mode", "an override"), ("inherit", "replace", "extend"), "'mode'")
                or "inherit"
            )
            own = own.get("list")
        lists = [self._gate if mode != "replace" else None, own if mode != "inherit" else None]
        read: list[Assertion] = []
        for group in lists:
            if group is None or reading.require_list(group, "predicates") is None:
                continue
            if self._closed and len(group.value) > _MOST_ASSERTIONS:
                reading.error(group, f"assertions: expected at most {_MOST_ASSERTIONS}, found {len(group.value)}", code="wrong_size")
            read += filter(None, (read_predicate(reading, entry) for entry in group.items()))
        return read
