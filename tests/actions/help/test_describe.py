from __future__ import annotations

from pathlib import Path

import pytest

from proctor.actions.help.describe import describe
from proctor.actions.help.describe_live import TARGET_EXAMPLES
from proctor.actions.workspace.models import model_settings
from proctor.cassettes.ports import Tape
from proctor.errors import InputError
from proctor.formats.text.references import References
from proctor.formats.workspace_file import read_workspace
from proctor.llm.build import PROVIDERS, build_model
from proctor.llm.ports import ChatModel
from proctor.targets.build import TYPES, build_target

ENVIRONMENT = {"DESK_TOKEN": "t-17", "FLOWISE_KEY": "f-17", "N8N_KEY": "n-17", "OPENAI_API_KEY": "o-17", "ANTHROPIC_API_KEY": "a-17"}


def no_model(tape: Tape) -> ChatModel:
    raise AssertionError("no request is expected")


@pytest.mark.parametrize("kind", TYPES)
def test_the_example_of_a_target_can_be_built_and_uses_fields_that_are_listed(kind: str, tmp_path: Path) -> None:
    (tmp_path / "my_agent.py").write_text("def answer(message): return message\n")
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings" / "one.json").write_text('{"text": "hi"}')
    file = tmp_path / "proctor.yaml"
    name, section = read_workspace(TARGET_EXAMPLES[kind], file=str(file)).find_target(None)
    assert build_target(name, section, References(ENVIRONMENT), base=tmp_path, model_for=no_model).name == name
    [described] = describe("target", kind)
    listed = {field.name for field in described.fields}
    assert {key for key, _ in section.node.members()} <= listed
    assert {field.name for field in described.fields if field.required} <= {key for key, _ in section.node.members()}


def test_every_provider_is_described_with_a_model_that_can_be_built() -> None:
    assert [entry.name for entry in describe("models")] == list(PROVIDERS)
    for entry in describe("models"):
        workspace = read_workspace(entry.example, file="proctor.yaml")
        environment = {**ENVIRONMENT, "AZURE_API_KEY": "z-17"}
        settings = model_settings("small", workspace, References(environment), environment)
        assert settings.provider == entry.name
        assert build_model(settings).name


def test_an_unknown_target_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown target 'htpp'; nearest: http"):
        describe("target", "htpp")


def test_every_judge_setting_is_described() -> None:
    [settings] = [entry for entry in describe("judge") if entry.name == "settings"]
    assert {"temperature", "seed", "backoff_s", "model", "cache"} <= {field.name for field in settings.fields}
    assert [field.name for field in settings.fields if not field.about] == []
