"""MCPLab files: the suites they become, and how every mistake in them is reported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import InputError
from proctor.formats.mcplab import suite as mcplab
from proctor.formats.mcplab.library import Library, LibraryDocument, find_bundle_root, read_library
from proctor.formats.mcplab.rules import CONFIG_KEYS, EVAL_KEYS, SCENARIO_KEYS
from proctor.formats.mcplab.setup import ATTACHMENT_KEYS, LLM_KEYS, SERVER_KEYS
from proctor.formats.text.documents import read_text
from proctor.formats.text.located import Located, Reading
from proctor.model.case import UNSEEN_TOOLS, Case, Suite

GOLDEN = Path(__file__).parent / "golden" / "mcplab"
INPUTS = sorted(path for path in GOLDEN.iterdir() if path.suffix in (".yaml", ".json"))


def parsed(text: str, file: str = "evals/suite.yaml") -> tuple[Located, Reading]:
    reading = Reading(file=file, text=text)
    document = read_text(text, file=file, reading=reading)
    assert document is not None, [problem.render() for problem in reading.problems]
    return document, reading


def suite_of(text: str, library: Library | None = None) -> Suite:
    """Read a suite that must be usable; its warnings are in it."""
    document, reading = parsed(text)
    assert mcplab.sniff(document)
    suite = mcplab.read(document, reading, name="suite", library=library)
    return msgspec.structs.replace(suite, warnings=reading.finish())


def case_of(rules: str) -> Case:
    """The one case of a scenario with these lines in its `eval` block."""
    indented = "\n".join(f"  {line}" for line in rules.strip("\n").splitlines())
    return suite_of(f"id: s\nprompt: p\neval:\n{indented}\n").cases[0]


def library_of(**files: str) -> Library:
    """A library of `servers`, `agents` and, for every other name, a test case file."""

    def entry(name: str) -> LibraryDocument:
        reading = Reading(file=f"lab/{name}.yaml", text=files[name])
        return LibraryDocument(read_text(files[name], file=reading.file, reading=reading), reading)

    return read_library(
        root="lab",
        servers=entry("servers") if "servers" in files else None,
        agents=entry("agents") if "agents" in files else None,
        scenarios=[entry(name) for name in files if name not in ("servers", "agents")],
    )


# --- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", INPUTS, ids=[path.stem for path in INPUTS])
def test_every_fault_is_reported_with_its_place(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    reading = Reading(file=path.name, text=text)
    document = read_text(text, file=path.name, reading=reading)
    if document is not None:
        mcplab.read(document, reading, name="suite")
    try:
        problems = reading.finish()
    except InputError as error:
        problems = error.problems
    report = "\n".join(problem.render() for problem in problems) + "\n"
    golden = path.with_suffix(".txt")
    if os.environ.get("PROCTOR_REGEN"):
        golden.write_text(report, encoding="utf-8")
    assert report == golden.read_text(encoding="utf-8")


def test_no_golden_file_is_unused() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {path.stem for path in INPUTS}


# --- rules ------------------------------------------------------------------------------------------------------------

ALL_RULES = """
agent_context: {include_prompt: true, include_tool_inputs: true}
agent_assertions:
  - {label: on_topic, prompt: Only order 17.}
response_assertions:
  - {type: contains, value: A}
  - {type: not_contains, value: B}
  - {type: starts_with, value: C}
  - {type: ends_with, value: D}
  - {type: equals, value: E}
  - {type: regex, pattern: 'F\\d'}
  - {type: jsonpath, path: $.g}
  - {type: jsonpath, path: $.g, equals: null}
  - {type: jsonpath, path: $.g, equals: 1.0}
  - {type: jsonpath_exists, path: $.h}
  - {type: jsonpath_not_exists, path: $.i}
tool_input_assertions:
  - {type: contains, tool: s, value: J}
  - {type: regex, tool: s, pattern: K}
  - {type: jsonpath, tool: s, path: $.l}
  - {type: jsonpath, tool: s, path: $.l, equals: false}
tool_sequence: [m, n]
tool_constraints:
  required_tools: [o, o]
  forbidden_tools: [p]
"""


def test_assertions_have_the_order_and_labels_of_the_original() -> None:
    case = case_of(ALL_RULES)
    assert [(assertion.check, assertion.label) for assertion in case.assertions] == [
        ("tool_not_called", "Forbidden tool · p"),
        ("tool_called", "Required tool · o"),
        ("tool_called", "Required tool · o"),
        ("tools_in_order", "Tool sequence · m -> n"),
        ("tool_input_contains", "Tool input · s contains J"),
        ("tool_input_matches", "Tool input · s matches regex K"),
        ("tool_input_path", "Tool input · s JSONPath $.l exists"),
        ("tool_input_path", "Tool input · s JSONPath $.l == false"),
        ("response_contains", "Text contains · A"),
        ("response_not_contains", "Text does not contain · B"),
        ("response_starts_with", "Text starts with · C"),
        ("response_ends_with", "Text ends with · D"),
        ("response_equals", "Text equals · E"),
        ("response_matches", "Text matches regex · F\\d"),
        ("json_path", "JSONPath exists · $.g"),
        ("json_path", "JSONPath equals · $.g == null"),
        ("json_path", "JSONPath equals · $.g == 1"),
        ("json_path", "JSONPath exists · $.h"),
        ("json_path", "JSONPath not exists · $.i"),
        ("judged", "on_topic"),
    ]


def test_specs_have_the_rules_of_the_original() -> None:
    plain: list[Any] = [msgspec.to_builtins(assertion.spec) for assertion in case_of(ALL_RULES).assertions]
    assert plain[0] == {"name": "p", "server_prefix": True}
    assert plain[1] == {"name": "o", "server_prefix": True}
    assert plain[3] == {"names": ("m", "n"), "server_prefix": True}
    assert plain[4] == {"tool": "s", "text": "J", "server_prefix": True}
    assert plain[5] == {"tool": "s", "pattern": "K", "on_invalid": "fail", "server_prefix": True}
    assert plain[7] == {"tool": "s", "path": "$.l", "equals": False, "syntax": "mcplab", "server_prefix": True}
    assert plain[8] == {"text": "A"}
    assert plain[13] == {"pattern": "F\\d", "flags": "i", "drop_inline_flags": True, "on_invalid": "fail"}
    of_json = {"syntax": "mcplab", "source": "text", "unfence": False, "scalars_only": True, "falsy_is_empty": True}
    assert plain[14] == {"path": "$.g", **of_json}
    assert plain[15] == {"path": "$.g", "equals": None, **of_json}
    assert plain[18] == {"path": "$.i", "exists": False, **of_json}
    assert plain[19] == {"criteria": "Only order 17.", "show_prompt": True, "show_tool_inputs": True}


def test_an_assertion_has_its_place_in_the_file() -> None:
    case = case_of("response_assertions:\n  - {type: contains, value: A}")
    origin = case.assertions[0].origin
    assert (str(origin), origin.path) == ("evals/suite.yaml:5:7", "$.eval.response_assertions[0]")


@pytest.mark.parametrize(
    "rules",
    [
        "tool_sequence: []",
        "tool_sequence: {allow: []}",
        "tool_constraints:",
        "tool_constraints: {required_tools: , forbidden_tools: []}",
        "response_assertions:",
    ],
)
def test_an_empty_block_has_no_checks(rules: str) -> None:
    assert case_of(rules).assertions == ()


def test_a_case_without_rules_passes_with_a_warning() -> None:
    suite = suite_of("scenarios: [{id: a, prompt: hi}]")
    assert suite.cases[0].scoring.when_empty == "pass"
    assert [problem.code for problem in suite.warnings] == ["no_assertions"]


def test_the_old_sequence_form_allows_whole_lists() -> None:
    case = case_of("tool_sequence: {allow: [[a, b], []]}")
    assert msgspec.to_builtins(case.assertions[0].spec) == {"any_of": (("a", "b"), ()), "server_prefix": True}
    assert case.assertions[0].check == "tools_exactly"
    assert case.assertions[0].label == "Tool sequence · a -> b | (no tools)"


def test_a_backslash_in_double_quotes_reaches_the_pattern() -> None:
    case = case_of('response_assertions: [{type: regex, pattern: "refund\\s+(processed|completed)"}]')
    assert msgspec.to_builtins(case.assertions[0].spec)["pattern"] == "refund\\s+(processed|completed)"


# --- suites -----------------------------------------------------------------------------------------------------------

LIBRARY = {
    "servers": "orders: {transport: http, url: http://library/mcp}\nbroken: {url: x}\n",
    "agents": "- {id: claude, provider: anthropic, model: haiku}\n- {id: halfway, provider: openai}\n",
    "refund": "id: refund\nname: Refund\ntags: [smoke]\nprompt: Refund 17\nmcp_servers: [{ref: orders}]\neval: {tool_sequence: [refund]}\n",
}


def test_references_are_resolved_through_the_library() -> None:
    suite = suite_of(
        "agents: [{ref: claude}]\nscenarios:\n  - ref: refund\n  - {id: b, prompt: p, mcp_servers: [{ref: orders}]}\n",
        library_of(**LIBRARY),
    )
    assert [case.id for case in suite.cases] == ["refund", "b"]
    refund = suite.cases[0]
    assert (refund.name, refund.input, refund.tags) == ("Refund", "Refund 17", {"tags": ["smoke"]})
    assert refund.settings == {"mcp_servers": [{"id": "orders", "transport": "http", "url": "http://library/mcp"}]}
    assert refund.origin.file == "lab/refund.yaml"
    assert suite.settings["agents"] == [{"id": "claude", "type": "llm", "provider": "anthropic", "model": "haiku"}]


def test_missing_library_entries_are_left_out_with_a_warning() -> None:
    library = library_of(**LIBRARY)
    assert sorted(library.servers) == ["orders"] and sorted(library.agents) == ["claude"]
    assert [str(problem.origin) + " " + problem.message for problem in library.problems] == [
        "lab/servers.yaml:2:9 a server of the library without 'transport' is left out",
        "lab/agents.yaml:2:3 an agent of the library without 'model' is left out",
    ]


def test_an_overlay_replaces_the_servers_of_a_library_scenario_and_an_empty_one_clears_them() -> None:
    library = library_of(**LIBRARY)
    overlay = "scenarios: [{ref: refund, mcp_servers: [{id: local, transport: http, url: http://local/mcp}]}]"
    assert suite_of(overlay, library).cases[0].settings["mcp_servers"] == [{"id": "local", "transport": "http", "url": "http://local/mcp"}]
    assert suite_of("scenarios: [{ref: refund, mcp_servers: []}]", library).cases[0].settings["mcp_servers"] == []


def test_a_fault_in_a_library_scenario_names_its_own_file() -> None:
    library = library_of(bad="id: bad\nprompt: p\neval:\n  tool_sequnce: [x]\n")
    with pytest.raises(InputError) as caught:
        suite_of("scenarios:\n  - ref: bad\n  - ref: unknown\n", library)
    assert [problem.write_headline() for problem in caught.value.problems] == [
        "evals/suite.yaml:3:10: the scenario 'unknown' is not in the library of lab",
        "lab/bad.yaml:4:3: unknown key 'tool_sequnce' in 'eval'",
    ]
    assert caught.value.problems[1].excerpt == "  tool_sequnce: [x]"


def test_a_library_file_that_cannot_be_read_only_matters_when_it_is_needed() -> None:
    library = library_of(servers="a: [", bad="id: [", noid="prompt: p\n", text="just text")
    assert all(problem.level == "warning" for problem in library.problems)
    assert len(library.problems) == 4
    suite_of("scenarios: [{id: a, prompt: p, eval: {tool_sequence: [x]}}]", library)


def test_a_library_agent_that_breaks_a_rule_is_an_error() -> None:
    with pytest.raises(InputError, match="unknown provider 'azure'"):
        suite_of("scenarios: [{id: a, prompt: p}]", library_of(agents="- {id: x, provider: azure, model: gpt}\n"))


def test_the_same_test_case_in_two_library_files_is_used_once() -> None:
    library = library_of(one="id: same\nprompt: first\n", two="id: same\nprompt: second\n")
    assert suite_of("scenarios: [{ref: same}]", library).cases[0].input == "first"


def test_duplicate_and_unusable_library_entries_are_reported() -> None:
    library = library_of(
        servers="- {id: s, transport: http, url: a}\n- {id: s, transport: http, url: b}\n- text\n- {transport: http, url: b}\n",
        agents="- {id: p, type: browser, provider: chatgpt, url: u, new_conversation_between_scenarios: true}\n- {id: q, type: browser}\n",
    )
    assert library.servers == {"s": {"id": "s", "transport": "http", "url": "a"}}
    assert library.agents["p"]["new_conversation_between_scenarios"] is True
    assert [f"{problem.origin}: {problem.message}" for problem in library.problems if problem.level == "error"] == [
        "lab/servers.yaml:2:8: a server of the library: the id 's' appears twice",
        'lab/servers.yaml:3:3: a server of the library: expected an object, found text "text"',
        "lab/servers.yaml:4:3: a server of the library needs 'id'",
        "lab/agents.yaml:2:3: an agent of the library of type 'browser' needs 'provider'",
        "lab/agents.yaml:2:3: an agent of the library of type 'browser' needs 'url'",
    ]


def test_a_library_scenario_is_used_once_in_a_suite() -> None:
    with pytest.raises(InputError) as caught:
        suite_of("scenarios:\n  - ref: refund\n  - ref: refund\n  - ref: [a]\n", library_of(**LIBRARY))
    errors = [problem.write_headline() for problem in caught.value.problems if problem.level == "error"]
    assert errors == [
        "evals/suite.yaml:3:10: two scenarios with the id 'refund'",
        "evals/suite.yaml:4:10: 'ref': expected text, found list",
    ]


def test_a_server_id_has_one_definition_in_all_scenarios() -> None:
    same = "{id: s, transport: http, url: http://a/mcp}"
    text = "scenarios:\n  - {{id: a, prompt: p, mcp_servers: [{0}]}}\n  - {{id: b, prompt: p, mcp_servers: [{1}]}}\n"
    assert len(suite_of(text.format(same, same)).cases) == 2
    with pytest.raises(InputError, match=r"the server 's' is defined differently at evals/suite\.yaml:2:38"):
        suite_of(text.format(same, same.replace("//a", "//b")))


def test_name_and_description_are_trimmed_and_empty_ones_are_absent() -> None:
    suite = suite_of("name: '  '\ndescription: ' x '\nscenarios: [{id: a, name: ' A ', prompt: p}]")
    assert (suite.name, suite.description, suite.cases[0].name) == ("suite", "x", "A")


def test_the_prompt_is_unchanged() -> None:
    assert suite_of("scenarios: [{id: a, prompt: '  hi  '}]").cases[0].input == "  hi  "


def test_captures_attachments_and_selection_are_read() -> None:
    suite = suite_of(
        "agents: [{id: gpt, provider: openai, model: m}, {id: old, provider: openai, model: m}]\n"
        "run_defaults: {selected_agents: [' gpt ']}\n"
        "scenarios:\n"
        "  - id: a\n"
        "    prompt: p\n"
        "    agent: old\n"
        "    extract: [{name: total, from: final_text, regex: '(\\d+)'}]\n"
        "    attachments: [{path: a/b.PNG}, {data: aGk=}]\n"
    )
    assert [(capture.name, capture.pattern) for capture in suite.cases[0].captures] == [("total", "(\\d+)")]
    assert suite.cases[0].settings["attachments"] == [
        {"path": "a/b.PNG", "media_type": "image/png", "type": "image"},
        {"data": "aGk=", "media_type": "application/octet-stream", "type": "document"},
    ]
    assert suite.settings["run_defaults"] == {"selected_agents": ["gpt", "old"]}


BROWSER = "{id: page, type: browser, provider: chatgpt, url: http://x}"
MODEL = "{id: gpt, provider: openai, model: m}"


@pytest.mark.parametrize(("agents", "blind"), [([BROWSER], ["page"]), ([BROWSER, MODEL], ["page"]), ([MODEL], None), ([], None)])
def test_a_case_with_agents_without_visible_tools_is_not_skipped(agents: list[str], blind: list[str] | None) -> None:
    suite = suite_of(f"agents: [{', '.join(agents)}]\nscenarios: [{{id: a, prompt: p}}]\n")
    assert suite.cases[0].skip is None
    assert suite.cases[0].settings.get(UNSEEN_TOOLS) == blind


@pytest.mark.parametrize(
    ("key", "level"),
    [
        ("version", "warning"),
        ("owner", "warning"),
        ("targets", "warning"),
        ("schema_version", "warning"),
        ("x-anything", None),
        ("x-agents", None),
        ("agnets", "error"),
        ("Scenario", "error"),
        ("defaults", "error"),
        ("eval", "error"),
        ("mcp_servers", "error"),
        ("selected_agents", "error"),
        ("response_assertions", "error"),
    ],
)
def test_an_unknown_config_key_is_a_warning_or_an_error_if_misspelt(key: str, level: str | None) -> None:
    document, reading = parsed(f"scenarios: [{{id: a, prompt: p, eval: {{tool_sequence: [x]}}}}]\n{key}: [1]\n")
    mcplab.read(document, reading, name="suite")
    assert [problem.level for problem in reading.problems] == ([level] if level else [])


def test_snapshots_are_reported_to_have_no_effect() -> None:
    scenario = "{id: a, prompt: p, eval: {tool_sequence: [x]}, snapshot_eval: {enabled: true, baseline_snapshot_id: s1}}"
    suite = suite_of(f"snapshot_eval: {{enabled: true}}\nscenarios: [{scenario}]\n")
    assert [(problem.level, problem.code, problem.origin.path) for problem in suite.warnings] == [
        ("warning", "legacy_form", "$.snapshot_eval"),
        ("warning", "legacy_form", "$.scenarios[0].snapshot_eval"),
    ]


def test_a_single_test_case_needs_no_workspace() -> None:
    suite = suite_of("id: a\nname: Alone\nprompt: p\nmcp_servers: [{ref: orders}]\nservers: []\nagent: gpt\neval: {tool_sequence: [x]}\n")
    older = suite_of("id: a\nprompt: p\nservers: [orders]\neval: {tool_sequence: [x]}\n")
    assert older.cases[0].settings == {"mcp_servers": []}
    assert (suite.name, [case.id for case in suite.cases]) == ("Alone", ["a"])
    assert [problem.code for problem in suite.warnings] == ["unresolved_ref", "legacy_form"]


def test_the_bundle_root_is_the_parent_of_a_known_folder() -> None:
    assert find_bundle_root("mcplab/evals/a.yaml") == "mcplab"
    assert find_bundle_root("mcplab/configs/a.yaml") == "mcplab"
    assert find_bundle_root("mcplab/test-cases/a.yaml") == "mcplab"
    assert find_bundle_root("C:\\lab\\evals\\a.yaml") == "C:/lab"
    assert find_bundle_root("mcplab/evals/sub/a.yaml") == "mcplab/evals/sub"
    assert find_bundle_root("a.yaml") == ""


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("scenarios: []", True),
        ("{agents: [], scenarios: [{ref: a}]}", True),
        ("scenario_refs: [a]", True),
        ("{id: a, prompt: p}", True),
        ("{eval: {tool_sequence: [a]}}", True),
        ("{proctor: 1, scenarios: []}", False),
        ("{scenario: s, input_utterance: i, assertions: {}}", False),
        ("{test_cases: []}", False),
        ("{task: {}, criteria: []}", False),
        ("{schemaVersion: '1', suite: {}, cases: []}", False),
        ("[{id: a, prompt: p}]", False),
        ("text", False),
    ],
)
def test_the_shape_is_recognised(text: str, ours: bool) -> None:
    assert mcplab.sniff(parsed(text)[0]) is ours


RULE_WORDS = ["ref", "selected_agents", "required_tools", "forbidden_tools", "allow", "label", "tool", "value", "pattern", "equals"]
RULE_WORDS += ["contains", "regex", "jsonpath", "jsonpath_exists", "regex", "include_prompt", "bearer", "token", "http", "openai"]
WORDS = st.sampled_from(sorted({*CONFIG_KEYS, *SCENARIO_KEYS, *EVAL_KEYS, *SERVER_KEYS, *LLM_KEYS, *ATTACHMENT_KEYS, *RULE_WORDS}))
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.just("$.a") | st.just("[") | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=25,
)


@given(st.dictionaries(WORDS, DOCUMENTS, max_size=6) | DOCUMENTS)
@settings(max_examples=200, deadline=None)
@pytest.mark.timeout(60)
def test_any_document_is_read_or_reported(value: Any) -> None:
    text = msgspec.json.encode(value).decode()
    reading = Reading(file="suite.json", text=text)
    document = read_text(text, file="suite.json", reading=reading)
    assert document is not None
    mcplab.sniff(document)
    suite = mcplab.read(document, reading, name="suite", library=Library())
    for problem in reading.problems:
        problem.render()
    assert isinstance(suite, Suite)


def test_a_server_named_twice_by_a_scenario_is_used_once() -> None:
    library = library_of(**LIBRARY)
    orders = {"id": "orders", "transport": "http", "url": "http://library/mcp"}
    again = suite_of("scenarios: [{id: a, prompt: p, mcp_servers: [{ref: orders}, {ref: orders}]}]", library)
    assert again.cases[0].settings["mcp_servers"] == [orders]
    pool = "servers: {s: {transport: http, url: u}, t: {transport: http, url: u}}"
    older = suite_of(f"{pool}\nscenarios: [{{id: a, prompt: p, servers: [s, t, s]}}]")
    assert [server["id"] for server in older.cases[0].settings["mcp_servers"]] == ["s", "t"]
    different = "{id: s, transport: http, url: a}, {id: s, transport: http, url: b}"
    with pytest.raises(InputError, match="the server 's' is defined differently"):
        suite_of(f"scenarios: [{{id: a, prompt: p, mcp_servers: [{different}]}}]")
