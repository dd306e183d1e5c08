"""Reads the judge settings of a suite, a workspace, the environment and a command, and merges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from proctor.actions.workspace.models import fill_from_environment, named_model
from proctor.actions.workspace.settings import own_workspace, workspace_file
from proctor.errors import InputError, SpecError
from proctor.formats.text.references import References
from proctor.formats.workspace_file import Section, Workspace
from proctor.judge.settings import JudgeSettings
from proctor.llm.settings import ModelSettings
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.judgement import LabelledAnswer
from proctor.model.problem import Origin, Problem
from proctor.model.show import suggest
from proctor.sources.labels import read_labels
from proctor.sources.texts import read_suite_text

_PROVIDER_NAME = "a model that is not described under `models` is written provider/name, as in openai/some-model"


class JudgeSection(JudgeSettings, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of `judge:`. `prompt` names a file here."""

    model: tuple[str, ...] = ()
    """One of `models`, or `provider/name`; several are a jury."""
    cache: bool = True
    """Whether replies are remembered in the workspace."""
    prompt: str | None = None
    """A file next to the one that names it: the instruction to use instead of ours."""
    examples: str | None = None
    """A file of labelled answers next to the one that names it: every request shows them, as `proctor judge improve` writes them."""


class JudgeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Judge options of a command, which override all settings."""

    model: str | None = None
    samples: int | None = None
    cache: bool = True
    share_over_repeats: bool | None = None
    max_calls: int | None = None
    concurrency: int | None = None
    decisions: tuple[dict[str, Json], ...] | None = None
    memory: Path | None = None
    """The folder of cached replies, if it is not that of the workspace's results."""


NO_OPTIONS = JudgeOptions()


def read_judge_section(workspace: Workspace, references: References) -> JudgeSection:
    """Return the section `judge:`, its references resolved. Raises `InputError`."""
    section = workspace.judge
    if section is None:
        return JudgeSection()
    try:
        return section.build(JudgeSection, references, "judge")
    except SpecError as error:
        raise section.refusal_error(error) from None


def find_judge_model(
    name: str, workspace: Workspace, references: References, environment: Mapping[str, str], *, chosen: bool
) -> ModelSettings:
    """Return the model of this name: one of `models`, else `provider/name`. `chosen` if a command names it. Raises `InputError`."""
    if name in workspace.models:
        return fill_from_environment(workspace.find_model(name).build(ModelSettings, references, f"model {name!r}"), environment)
    settings = named_model(name)
    if settings is None:
        # Raises with the list of known names.
        section = workspace.judge
        # A name from the command line has no line in the file.
        if not chosen and section is not None and section.node.get("model") is not None:
            raise _make_unknown_model_error(section, name, workspace.models)
        known = f"{suggest(name, workspace.models)}; known: {', '.join(workspace.models) or 'none'}"
        raise InputError(f"judge: there is no model {name!r}{known}\n  {_PROVIDER_NAME}")
    # The key belongs to the address: the key of the provider is not sent to another address.
    if environment.get("PROCTOR_JUDGE_BASE_URL"):
        settings = msgspec.structs.replace(
            settings, base_url=environment["PROCTOR_JUDGE_BASE_URL"], api_key=environment.get("PROCTOR_JUDGE_API_KEY") or None
        )
    return fill_from_environment(settings, environment)


def make_judge_settings(section: JudgeSection, workspace: Workspace, suite: Suite | None) -> JudgeSettings:
    """Return the settings of a judge, with the text of the prompt instead of its file."""
    fields = {name: getattr(section, name) for name in JudgeSettings.__struct_fields__}
    if section.prompt is not None:
        fields["prompt"] = read_suite_text(_find_file("prompt", section.prompt, workspace, suite))
    if section.examples is not None:
        labels = read_labels([_find_file("examples", section.examples, workspace, suite)]).items
        fields["decisions"] = (*section.decisions, *map(show_example, labels))
    return JudgeSettings(**fields)


def show_example(item: LabelledAnswer) -> dict[str, Json]:
    """Return a labelled answer in the form in which a judge sees it as an example."""
    known = {"context": item.context, "reference": item.reference, "why": item.why}
    example: dict[str, Json] = {"criterion": item.criterion, "answer": item.answer, **{key: value for key, value in known.items() if value}}
    return {**example, "met": item.label}


def _find_file(what: str, name: str, workspace: Workspace, suite: Suite | None) -> Path:
    """Return the file that `prompt` or `examples` names, which must be in the folder of the suite or workspace."""
    file = workspace.judge.file if workspace.judge is not None else None
    folder = Path(file or (suite.path if suite is not None else None) or "proctor.yaml").resolve().parent
    place = (folder / name).resolve()
    # Its text is sent to a model, so a suite must not name arbitrary files of this machine.
    if not place.is_relative_to(folder):
        raise InputError(f"judge: the {what} {name!r} is not in {str(folder)!r}")
    return place


def apply_options(settings: JudgeSettings, options: JudgeOptions) -> JudgeSettings:
    """Return the settings with the options of a command applied."""
    names = ("samples", "max_calls", "concurrency", "share_over_repeats", "decisions")
    changes = {name: value for name in names if (value := getattr(options, name)) is not None}
    try:
        return msgspec.structs.replace(settings, **changes)
    except SpecError as error:
        raise InputError(f"{error.field} of the judge: {error.message}") from None


def list_judge_problems(suite: Suite, home: Path) -> Sequence[Problem]:
    """Return the problems of the `judge:` of a suite that can be found without its keys."""
    if suite.dialect != "native" or not any(suite.settings.get(key) is not None for key in ("judge", "models")):
        return ()
    try:
        workspace = own_workspace(suite)
        if workspace.judge is None:
            return ()
        model = workspace.judge.check(JudgeSection, "judge").model
        models = workspace.lay_over(workspace_file(home)).models
        for name in model:
            if name not in models and named_model(name) is None and "${" not in name:
                raise _make_unknown_model_error(workspace.judge, name, models)
    except InputError as error:
        return error.problems or (Problem(message=str(error), origin=Origin(file=suite.path)),)
    return ()


def _make_unknown_model_error(section: Section, name: str, models: Mapping[str, Section]) -> InputError:
    return section.unknown_member_error("model", f"judge: there is no model {name!r}", models, code="unknown_name", hint=_PROVIDER_NAME)
