"""The judge of an MCPLab workspace: the agent of its library that its settings name.

`.mcplab-app-settings.yaml` in the bundle root, key `evaluation_judge_agent_name`. Model, temperature and token limit are the agent's; its
`system` text is not used, as in the original. A name that the library does not have is an error whether anything is to be judged or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from proctor.actions.mcplab.access import Access
from proctor.actions.mcplab.files import SETTINGS_FILE, root_of, variables_of
from proctor.actions.mcplab.plan import Entry
from proctor.errors import InputError
from proctor.formats.text.documents import read_text
from proctor.formats.text.located import Reading
from proctor.judge.settings import JudgeSettings
from proctor.llm.ports import ChatModel
from proctor.model.case import Suite
from proctor.model.show import nearest
from proctor.sources.texts import read_suite_text
from proctor.sources.workspaces import load_library

JUDGE_KEY: Final = "evaluation_judge_agent_name"


def judge_agent(suite: Suite) -> Entry | None:
    """The agent that the workspace of `suite` names as its judge. Raises `InputError` for one that is not there or cannot judge."""
    root = root_of(suite)
    file = root / SETTINGS_FILE
    name = _judge_name(file)
    if name is None:
        return None
    agents = load_library(root).agents
    agent = agents.get(name)
    if agent is None:
        close = nearest(name, agents)
        raise InputError(
            f"{file}: {JUDGE_KEY} names the agent {name!r}, which is not in the library"
            + (f"; nearest: {', '.join(map(repr, close))}" if close else "")
            + f"; known: {', '.join(agents) or 'none'}"
        )
    if agent.get("type") == "browser":
        raise InputError(f"{file}: the agent {name!r} drives a browser, and cannot judge")
    return agent


def mcplab_judge(
    suite: Suite, environment: Mapping[str, str], *, offline: bool = False, may_read: Callable[[Path], bool] = lambda file: True
) -> tuple[list[ChatModel], JudgeSettings, set[str]] | None:
    """Model, settings and secrets of the judge that the workspace of `suite` names; nothing where it names none.

    `may_read` decides which of its `.env` files count.
    """
    agent = judge_agent(suite)
    if agent is None:
        return None
    access = Access(variables_of(environment, root_of(suite), may_read), tokens={}, offline=offline)
    model = access.model(agent)
    access.finish()
    assert model is not None  # `finish` has raised
    changes = {key: agent[key] for key in ("temperature", "max_tokens") if agent.get(key) is not None}
    return [model], JudgeSettings(name=agent["id"], **changes), access.secrets


def _judge_name(file: Path) -> str | None:
    if not file.is_file():
        return None
    text = read_suite_text(file)
    reading = Reading(file=str(file), text=text)
    document = read_text(text, file=str(file), reading=reading)
    named = document.get(JUDGE_KEY) if document is not None and document.is_object else None
    found = reading.require_text(named, JUDGE_KEY) if named is not None and named.value is not None else None
    reading.finish()
    return found.strip() or None if found is not None else None
