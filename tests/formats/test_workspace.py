"""The workspace file: its settings, the settings of a suite that override them, and its problems."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.actions.help.init import FILES
from proctor.errors import InputError
from proctor.formats.text.references import References, ReplayedReferences
from proctor.formats.workspace_file import Section, build_workspace, read_workspace

GOLDEN = Path(__file__).parent / "golden" / "workspace"
VARIABLES = {"SHOP_TOKEN": "sk-secret-value", "ADDRESS": "not-an-address-but-secret", "EMPTY": "", "URL": "http://10.0.0.1/chat"}
SAMPLE = """
targets:
  shop: {type: http, url: "http://127.0.0.1:9000/chat", auth: {type: bearer, token: "${SHOP_TOKEN}"}, timeout_s: 30}
  other: {type: http, url: "${NOT_SET}"}
default_target: shop
models: {main: {provider: openai, model: some-model, api_key: "${SHOP_TOKEN}"}}
judge: {model: main, samples: 1}
"""


class Judge(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    samples: int = 3


def test_only_used_parts_of_a_workspace_are_resolved() -> None:
    workspace = read_workspace(SAMPLE, file="proctor.yaml")
    references = References(VARIABLES)
    name, section = workspace.find_target()
    assert name == "shop" and section.trusted
    assert section.plain(references)["auth"] == {"type": "bearer", "token": "sk-secret-value"}
    assert workspace.find_model("main").plain(references)["api_key"] == "sk-secret-value"
    assert workspace.judge is not None and workspace.judge.build(Judge, references, "judge") == Judge(model="main", samples=1)
    assert references.secrets == {"sk-secret-value"}
    with pytest.raises(InputError, match="the environment variable NOT_SET is not set"):
        workspace.find_target("other")[1].plain(references)


def test_a_file_of_comments_is_an_empty_workspace() -> None:
    workspace = read_workspace(FILES["proctor.yaml"], file="proctor.yaml")
    assert workspace.targets == {} and workspace.judge is None
    with pytest.raises(InputError, match="no target is described"):
        workspace.find_target()


def test_settings_of_a_suite_win_name_by_name() -> None:
    suite = build_workspace(
        {
            "targets": {"shop": {"type": "http", "url": "http://of-the-suite"}, "new": {"type": "recorded", "evidence": "x"}},
            "default_target": "new",
            "judge": {"model": "main", "samples": 5},
            "agents": "of another dialect",
        },
        file="suite.yaml",
    )
    both = suite.lay_over(read_workspace(SAMPLE, file="proctor.yaml"))
    assert set(both.targets) == {"shop", "other", "new"}
    assert both.find_target()[0] == "new"
    shop = both.find_target("shop")[1]
    assert shop.plain(References({})) == {"type": "http", "url": "http://of-the-suite"}
    assert not shop.trusted, "a suite may be anybody's"
    assert both.find_target("other")[1].trusted
    assert both.judge is not None and both.judge.plain(References({})) == {"model": "main", "samples": 5}
    assert set(both.models) == {"main"}


def test_several_targets_need_a_default() -> None:
    one = "targets: {shop: {type: http, url: 'http://x'}}"
    assert read_workspace(one).find_target()[0] == "shop"
    two = one.replace("}}", "}, flow: {type: http, url: 'http://x'}}")
    with pytest.raises(InputError, match="several targets and no default_target; name one of shop, flow"):
        read_workspace(two).find_target()
    with pytest.raises(InputError, match="there is no target 'shp'; nearest: shop; known: shop, flow"):
        read_workspace(two).find_target("shp")
    with pytest.raises(InputError, match="there is no model 'man'; nearest: main; known: main"):
        read_workspace(SAMPLE).find_model("man")


def test_an_unknown_default_target_is_reported_with_its_place() -> None:
    both = build_workspace({"default_target": "shp"}, file="suite.yaml").lay_over(read_workspace(SAMPLE))
    with pytest.raises(InputError) as caught:
        both.find_target()
    assert str(caught.value).splitlines()[:3] == [
        "suite.yaml: default_target: there is no target 'shp'",
        "  at $.default_target",
        "  expected one of shop, other; nearest: 'shop'",
    ]


@pytest.mark.parametrize(
    ("text", "expect"),
    [
        ("${A}", "one"),
        ("x-${A}-${B}", "x-one-two"),
        ("$${A}", "${A}"),
        ("$A and $ {A}", "$A and $ {A}"),
        ("${A}${A}", "oneone"),
        ("${B_2}", "${A}"),
    ],
)
def test_references_are_replaced_once(text: str, expect: str) -> None:
    references = References({"A": "one", "B": "two", "B_2": "${A}"})
    assert Section.of({"a": [text]}).plain(references) == {"a": [expect]}


def test_an_address_is_secret_only_if_it_contains_one() -> None:
    variables = {"A": "http://10.0.0.1/chat", "B": "http://u:p@10.0.0.1/chat", "C": "http://10.0.0.1/?key=1", "D": "abc", "E": "abcdef"}
    references = References(variables)
    Section.of({name: f"${{{name}}}" for name in variables}).plain(references)
    assert references.secrets == {variables["B"], variables["C"], variables["E"]}


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_problem_is_reported_with_its_place(path: Path) -> None:
    from proctor.targets.build import build_target

    with pytest.raises(InputError) as caught:
        workspace = read_workspace(path.read_text(encoding="utf-8"), file=path.name)
        build_target(*workspace.find_target("it"), References(VARIABLES))
    found = f"{caught.value}\n"
    assert "secret" not in found, "a message never shows the value of a variable"
    golden = path.with_suffix(".txt")
    if os.environ.get("PROCTOR_REGEN"):
        golden.write_text(found, encoding="utf-8")
    assert found == golden.read_text(encoding="utf-8")


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from("${}ab_ "), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "url", "auth", "token", "x"]), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(targets=JSON, variables=st.dictionaries(st.sampled_from(["a", "b", "_"]), st.text(max_size=5)))
def test_any_settings_are_used_or_an_input_error(targets: Any, variables: dict[str, str]) -> None:
    from proctor.targets.build import TYPES, build_target

    try:
        workspace = build_workspace({"targets": targets, "default_target": "x"})
        for name, section in workspace.targets.items():
            built = build_target(name, section, References(variables))
            assert built.name == name and section.node.get("type").value in TYPES  # type: ignore[union-attr]
    except InputError:
        pass


def test_one_letter_variables_are_never_suggested() -> None:
    section = Section.of({"api_key": "${SHOP_KEY}"})
    with pytest.raises(InputError) as caught:
        section.plain(References({"_": "/usr/bin/env", "K": "x"}))
    assert caught.value.problems[0].nearest == ()


def test_a_replay_needs_addresses_but_no_secrets() -> None:
    references = ReplayedReferences({"HOST": "shop.example"})
    section = Section.of(
        {"url": "https://${HOST}/chat", "auth": {"token": "${TOKEN}"}, "headers": {"X-Shop": "a ${KEY}"}, "api_key": "${KEY}"}
    )
    assert section.plain(references) == {
        "url": "https://shop.example/chat",
        "auth": {"token": "[redacted]"},
        "headers": {"X-Shop": "a [redacted]"},
        "api_key": "[redacted]",
    }
    with pytest.raises(InputError, match="HOME_OF_SHOP is not set"):
        Section.of({"url": "https://${HOME_OF_SHOP}/chat"}).plain(references)
