"""Which judge is meant, and whether one is needed: what a suite, a workspace and the environment say, made into a judge.

    judge: {model: main, samples: 3}                    # in the suite, else in proctor.yaml
    judge: {model: [main, other], combine: mean}        # a jury
    PROCTOR_JUDGE_MODEL, PROCTOR_JUDGE_BASE_URL, PROCTOR_JUDGE_API_KEY

A suite of MCPLab is judged by the agent that its workspace names. What the suite says wins over the workspace, and the workspace over
the environment; a flag of the command wins over all. A model is one of `models`, or `provider/name`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from proctor.actions.models import built_model, completed, named_model
from proctor.actions.settings import own_workspace, workspace_file, workspace_for
from proctor.actions.together import JUDGE_KEYS, JudgesTogether, of_suite, parts_of
from proctor.actions.trust import Named, Trust, named_in, named_in_settings, refuse_untrusted, trust_for
from proctor.checks.registry import Registry, default_registry
from proctor.errors import InputError, SpecError
from proctor.formats.references import References
from proctor.formats.workspace import Section, Workspace
from proctor.judge.settings import JudgeSettings
from proctor.llm.settings import ModelSettings
from proctor.model.case import Assertion, Case, Suite
from proctor.model.evidence import Json
from proctor.model.origin import Origin
from proctor.model.problem import Problem
from proctor.model.show import nearest, show
from proctor.runner.ports import Judge
from proctor.sources.texts import read_suite_text

if TYPE_CHECKING:
    from proctor.judge.gated_model import JudgeSpending
    from proctor.llm.through_httpx import MakeTransport

CACHE_FOLDER = "judge"
"""Below the folder of the workspace's results: what judges answered."""

_PROVIDER_NAME = "a model that is not described under `models` is written provider/name, as in openai/some-model"

_CHARACTERS_PER_TOKEN = 4
_INSTRUCTION_TOKENS = 700
"""What the instruction and the shape of the reply cost, about."""


class JudgeSection(JudgeSettings, frozen=True, kw_only=True, omit_defaults=True):
    """What `judge:` may say. `prompt` names a file here."""

    model: tuple[str, ...] = ()
    """One of `models`, or `provider/name`; several are a jury."""
    cache: bool = True
    """Whether replies are remembered in the workspace."""
    prompt: str | None = None
    """A file beside the one that names it: the instruction to use instead of ours."""


class JudgeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a command says about the judge, over everything that is written down."""

    model: str | None = None
    samples: int | None = None
    cache: bool = True
    share_over_repeats: bool | None = None
    max_calls: int | None = None
    concurrency: int | None = None


NO_OPTIONS = JudgeOptions()


class OpenedJudge(msgspec.Struct, frozen=True, kw_only=True):
    """A judge that is ready, and what must not be seen of it."""

    judge: Judge
    settings: JudgeSettings
    models: tuple[str, ...]
    secrets: frozenset[str]
    parts: tuple[tuple[Suite, OpenedJudge], ...] = ()
    """Of several suites: who judges which."""


def needs_judge(assertion: Assertion, registry: Registry | None = None) -> bool:
    """Whether an assertion cannot be decided without a judge."""
    if not (registry or default_registry()).get(assertion.check).judged:
        return False
    asked = getattr(assertion.spec, "needs_judge", None)
    return bool(asked()) if callable(asked) else True


def cases_that_need_a_judge(suite: Suite) -> list[Case]:
    """The cases that hold an assertion only a judge can decide."""
    return [case for case in suite.cases if case.skip is None and any(needs_judge(a) for a in case.assertions)]


def require_judge(suite: Suite, judge: object | None, *, allow_missing: bool = False) -> None:
    """Refuse to start where a judge is needed and there is none."""
    cases = [] if allow_missing else cases_that_need_a_judge(suite)
    if judge is not None:
        # Of several suites one may have none.
        cases = [case for case in cases if isinstance(judge, JudgesTogether) and not judge.has(case.id)]
    if cases:
        names = ", ".join(repr(case.id) for case in cases[:5]) + (f" and {len(cases) - 5} more" if len(cases) > 5 else "")
        raise InputError(
            f"claims of {len(cases)} case{'s' if len(cases) > 1 else ''} need a judge, and none is configured: {names}\n"
            "  name one: `judge: {model: ...}` in the suite or in proctor.yaml, or the variable PROCTOR_JUDGE_MODEL\n"
            "  --allow-missing-judge runs all the same; those assertions are then errors"
        )


def configured_judge(
    suite: Suite, home: Path, environment: Mapping[str, str], options: JudgeOptions = NO_OPTIONS, trust: Trust | None = None
) -> OpenedJudge | None:
    """The judge of a suite that has something to judge; nothing where it has not, or where none is configured.

    Unless `trust` says more, a judge that the suite itself describes is refused.
    """
    return open_judges(suite, References(dict(environment)), environment, home=home, options=options, trust=trust)


def open_judges(
    suite: Suite,
    references: References,
    environment: Mapping[str, str],
    *,
    home: Path,
    options: JudgeOptions = NO_OPTIONS,
    offline: bool = False,
    trust: Trust | None = None,
) -> OpenedJudge | None:
    """As `configured_judge`; of several suites each has the judge that it would have alone. Raises `InputError`."""
    trust = trust or trust_for("reading", home=home, environment=environment)
    parts = parts_of(suite, JUDGE_KEYS)
    opened: list[tuple[Suite, OpenedJudge]] = []
    spent = _counted_together() if options.max_calls is not None else None
    for part in parts:
        if not _asks(part):
            continue
        try:
            workspace = workspace_for(part, home)
            if not offline:
                refuse_untrusted(part, judge_names(part, workspace, options, trust), trust)
            found = open_judge(part, workspace, references, environment, home=home, options=options, offline=offline, spent=spent)
        except InputError as error:
            raise of_suite(error, part, parts) from None
        if found is not None:
            opened.append((part, found))
    if len(parts) == 1 or not opened:
        return opened[0][1] if opened else None
    return OpenedJudge(
        judge=JudgesTogether([found.judge for _, found in opened], {case.id: found.judge for part, found in opened for case in part.cases}),
        settings=opened[0][1].settings,
        models=tuple(dict.fromkeys(model for _, found in opened for model in found.models)),
        secrets=frozenset[str]().union(*(found.secrets for _, found in opened)),
        parts=tuple(opened),
    )


def judge_names(suite: Suite, workspace: Workspace, options: JudgeOptions, trust: Trust) -> list[Named]:
    """Return what would happen on the word of a suite alone, were its judge asked; nothing of one that is trusted."""
    if trust.takes(suite):
        return []
    if suite.dialect == "mcplab" and options.model is None and workspace.judge is None:
        return _mcplab_judge_names(suite, trust)
    found: list[Named] = []
    section = workspace.judge
    own = section is not None and not section.trusted
    names = [options.model] if options.model is not None else _model_names(section)
    if own and section is not None:
        found.extend(named for named in named_in(section, "judge") if options.model is None or not named.where.startswith("judge.model"))
    for name in names:
        described = workspace.models.get(name)
        if described is not None and not described.trusted:
            found.extend(_provider(described.find_text("provider"), f"models.{name}.provider"))
            found.extend(named_in(described, f"models.{name}"))
        elif described is None and own and options.model is None:
            found.extend(_provider(name, "judge.model"))
    return found


def _mcplab_judge_names(suite: Suite, trust: Trust) -> list[Named]:
    from proctor.actions.mcplab_files import root_of  # only MCPLab's own suites need these
    from proctor.actions.mcplab_judge import judge_agent

    agent = judge_agent(suite)
    # A workspace of MCPLab in the working folder is to its suites what proctor.yaml is to others.
    if agent is None or root_of(suite).resolve() == trust.folder.resolve():
        return []
    place = f"agents.{agent['id']}"
    return [*_provider(agent.get("provider"), f"{place}.provider"), *named_in_settings(agent, place)]


def _model_names(section: Section | None) -> list[str]:
    member = section.node.get("model") if section is not None else None
    named = () if member is None else (member, *member.items())
    return [one.value for one in named if isinstance(one.value, str)]


def _provider(name: Json, where: str) -> list[Named]:
    return [Named("sends to", f"the provider of {show(name)}", where)] if isinstance(name, str) else []


def _counted_together() -> JudgeSpending:
    from proctor.judge.gated_model import JudgeSpending  # only where there may be a judge

    return JudgeSpending()


def _asks(suite: Suite) -> bool:
    """Whether a judge has anything to say here."""
    registry = default_registry()
    return any(registry.get(a.check).judged for case in suite.cases for a in case.assertions)


def open_judge(
    suite: Suite | None,
    workspace: Workspace,
    references: References,
    environment: Mapping[str, str],
    *,
    home: Path,
    options: JudgeOptions = NO_OPTIONS,
    offline: bool = False,
    transport: MakeTransport | None = None,
    spent: JudgeSpending | None = None,
    plain: bool | None = None,
) -> OpenedJudge | None:
    """The judge that is configured; nothing where none is. Raises `InputError` for one that cannot work.

    Connections are made by `transport`, where one is given; what is asked is counted in `spent`. Faults are told in plain words unless
    the suite is one of MCPLab; `plain` says so where no suite is given.
    """
    if suite is not None and suite.dialect == "mcplab" and options.model is None and workspace.judge is None:
        from proctor.actions.mcplab_judge import mcplab_judge  # only MCPLab's own suites need it

        found = mcplab_judge(suite, environment, offline=offline)
        if found is not None:
            models, settings, secrets = found
            return _opened(models, {}, _chosen(settings, options), secrets, home, cache=options.cache, plain=False, spent=spent)
    section = _section(workspace, references)
    names = (options.model,) if options.model is not None else section.model
    settings_of = [_model(name, workspace, references, environment, chosen=options.model is not None) for name in names]
    if not settings_of:
        from_environment = _environment_model(environment)
        if from_environment is None:
            return None
        settings_of = [completed(from_environment, environment)]
    models = [built_model(each, offline=offline, transport=transport) for each in settings_of]
    secrets = {secret for each in settings_of for secret in each.list_secrets()}
    prices = {
        each.model: (each.input_price, each.output_price)
        for each in settings_of
        if each.input_price is not None and each.output_price is not None
    }
    chosen = _chosen(_settings(section, workspace, suite), options)
    if plain is None:
        plain = suite is None or suite.dialect != "mcplab"
    return _opened(models, prices, chosen, secrets, home, cache=section.cache and options.cache, plain=plain, spent=spent)


def open_home_judge(
    home: Path, environment: Mapping[str, str], *, options: JudgeOptions = NO_OPTIONS, plain: bool | None = None
) -> OpenedJudge | None:
    """Open the judge that the workspace file beside `home` or the environment names. Raises `InputError`."""
    variables = dict(environment)
    return open_judge(None, workspace_file(home), References(variables), variables, home=home, options=options, plain=plain)


def judge_problems(suite: Suite, home: Path) -> Sequence[Problem]:
    """What is wrong with the `judge:` of a suite, as far as that can be told without its keys."""
    if suite.dialect != "native" or not any(suite.settings.get(key) is not None for key in ("judge", "models")):
        return ()
    try:
        own = own_workspace(suite)
        if own.judge is None:
            return ()
        named = own.judge.check(JudgeSection, "judge").model
        models = own.lay_over(workspace_file(home)).models
        for name in named:
            if name not in models and named_model(name) is None and "${" not in name:
                raise _unknown_model(own.judge, name, models)
    except InputError as error:
        return error.problems or (Problem(message=str(error), origin=Origin(file=suite.path)),)
    return ()


def _unknown_model(section: Section, name: str, models: Mapping[str, Section]) -> InputError:
    return section.unknown_member_error("model", f"judge: there is no model {name!r}", models, code="unknown_name", hint=_PROVIDER_NAME)


def _opened(
    models: Sequence[Json],
    prices: Mapping[str, tuple[float, float]],
    settings: JudgeSettings,
    secrets: set[str],
    home: Path,
    *,
    cache: bool,
    plain: bool,
    spent: JudgeSpending | None,
) -> OpenedJudge:
    """The judge, ready to be asked; `plain` unless the suite is one of MCPLab, whose authors know its words."""
    from proctor.judge.cached import FolderCache, WriteBehindCache  # only where there is a judge
    from proctor.judge.llm_judge import LlmJudge
    from proctor.judge.wording import PlainlyWordedJudge

    kept = WriteBehindCache(FolderCache(home / CACHE_FOLDER)) if cache else None
    judge = LlmJudge(models, settings, cache=kept, costs=prices, spent=spent)
    return OpenedJudge(
        judge=PlainlyWordedJudge(judge) if plain else judge,
        settings=settings,
        models=tuple(f"{each.provider}/{each.name}" for each in models),
        secrets=frozenset(secrets),
    )


def _section(workspace: Workspace, references: References) -> JudgeSection:
    section = workspace.judge
    if section is None:
        return JudgeSection()
    try:
        return section.build(JudgeSection, references, "judge")
    except SpecError as error:
        raise section.refusal_error(error) from None


def _model(name: str, workspace: Workspace, references: References, environment: Mapping[str, str], *, chosen: bool) -> ModelSettings:
    if name in workspace.models:
        return completed(workspace.find_model(name).build(ModelSettings, references, f"model {name!r}"), environment)
    found = named_model(name)
    if found is None:
        # Says what there is.
        section = workspace.judge
        # A name given with the command is written nowhere in the file.
        if not chosen and section is not None and section.node.get("model") is not None:
            raise _unknown_model(section, name, workspace.models)
        close = nearest(name, workspace.models)
        hint = f"; nearest: {', '.join(close)}" if close else ""
        raise InputError(f"judge: there is no model {name!r}{hint}; known: {', '.join(workspace.models) or 'none'}\n  {_PROVIDER_NAME}")
    if environment.get("PROCTOR_JUDGE_BASE_URL"):
        found = msgspec.structs.replace(
            found, base_url=environment["PROCTOR_JUDGE_BASE_URL"], api_key=environment.get("PROCTOR_JUDGE_API_KEY") or None
        )
    return completed(found, environment)


def _environment_model(environment: Mapping[str, str]) -> ModelSettings | None:
    name = environment.get("PROCTOR_JUDGE_MODEL")
    if not name:
        return None
    address = environment.get("PROCTOR_JUDGE_BASE_URL") or None
    found = named_model(name, at_address=address is not None) or ModelSettings(provider="openai", model=name)
    return msgspec.structs.replace(found, base_url=address, api_key=environment.get("PROCTOR_JUDGE_API_KEY") or None)


def _settings(section: JudgeSection, workspace: Workspace, suite: Suite | None) -> JudgeSettings:
    fields = {name: getattr(section, name) for name in JudgeSettings.__struct_fields__}
    if section.prompt is not None:
        fields["prompt"] = _prompt(section.prompt, workspace, suite)
    return JudgeSettings(**fields)


def _prompt(named: str, workspace: Workspace, suite: Suite | None) -> str:
    """The text of the file that `prompt` names, which lies beside what names it and nowhere else."""
    file = workspace.judge.file if workspace.judge is not None else None
    folder = Path(file or (suite.path if suite is not None else None) or "proctor.yaml").resolve().parent
    place = (folder / named).resolve()
    if not place.is_relative_to(folder):
        raise InputError(f"judge: the prompt {named!r} does not lie in {str(folder)!r}")
    return read_suite_text(place)


def _chosen(settings: JudgeSettings, options: JudgeOptions) -> JudgeSettings:
    changes = {
        name: value
        for name, value in (
            ("samples", options.samples),
            ("max_calls", options.max_calls),
            ("concurrency", options.concurrency),
            ("share_over_repeats", options.share_over_repeats),
        )
        if value is not None
    }
    return msgspec.structs.replace(settings, **changes) if changes else settings


class Estimate(msgspec.Struct, frozen=True):
    """What judging a suite will take, as far as it can be known before anything has happened."""

    calls: int
    tokens: int
    """At least: what the agents will answer is not known yet."""


def estimated(suite: Suite, settings: JudgeSettings, *, jurors: int = 1, repeat: int = 1) -> Estimate:
    """How many requests and tokens judging `suite` will take, before what is remembered is taken off."""
    calls = tokens = 0
    for case in suite.cases:
        judged = [a for a in case.assertions if needs_judge(a)] if case.skip is None else []
        if not judged:
            continue
        groups = {(a.turn, getattr(a.spec, "target_node", None), getattr(a.spec, "threshold", None) is None) for a in judged}
        times = max(repeat, case.repetitions or 1) * settings.samples * jurors
        written = sum(len(msgspec.json.encode(a.spec)) for a in judged) // _CHARACTERS_PER_TOKEN
        calls += len(groups) * times
        tokens += (len(groups) * _INSTRUCTION_TOKENS + written) * times
    return Estimate(calls, tokens)


JudgeLike = object
"""A judge, or what can be made one: a function of a question, a mapping like `judge:`, or `provider/name`."""


def made_judge(judge: JudgeLike, environment: Mapping[str, str], *, home: Path) -> Judge:
    """The judge that Python code means."""
    if hasattr(judge, "judge"):
        return cast(Judge, judge)
    if callable(judge):
        from proctor.judge.scripted import ScriptedJudge  # for tests and rules written in Python

        return ScriptedJudge(cast(Callable[..., Json], judge))
    settings: dict[str, Json] = {"model": judge} if isinstance(judge, str) else dict(cast(Mapping[str, Json], judge))
    models: dict[str, Section] = {}
    if isinstance(settings.get("model"), Mapping):
        models["judge"] = Section.of(settings["model"])
        settings["model"] = "judge"
    workspace = Workspace(models=models, judge=Section.of(settings))
    opened = open_judge(None, workspace, References(environment), environment, home=home)
    if opened is None:
        raise InputError("judge: a model is needed, as in {'model': 'openai/some-model'}")
    return opened.judge
