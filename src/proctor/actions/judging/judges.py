"""Builds the judge from the suite, the workspace and the environment.

    judge: {model: main, samples: 3}                    # in the suite, else in proctor.yaml
    judge: {model: [main, other], combine: mean}        # a jury
    PROCTOR_JUDGE_MODEL, PROCTOR_JUDGE_BASE_URL, PROCTOR_JUDGE_API_KEY

A suite of MCPLab is judged by the agent that its workspace names. The suite wins over the workspace, and the workspace over
the environment; a flag of the command wins over all. A model is one of `models`, or `provider/name`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from proctor.actions.judging.judge_settings import (
    NO_OPTIONS,
    JudgeOptions,
    apply_options,
    find_judge_model,
    make_judge_settings,
    read_judge_section,
)
from proctor.actions.judging.trust import Trust, name_judge, refuse_untrusted, trust_for
from proctor.actions.workspace.combined_suites import JUDGE_KEYS, CombinedJudges, name_suite_in_error, split_suite
from proctor.actions.workspace.models import built_model, fill_from_environment, find_environment_model
from proctor.actions.workspace.settings import workspace_file, workspace_for
from proctor.checks.registry import Registry, default_registry
from proctor.errors import InputError
from proctor.formats.text.references import References
from proctor.formats.workspace_file import Section, Workspace
from proctor.judge.settings import JudgeSettings
from proctor.model.case import Assertion, Case, Suite
from proctor.model.evidence import Json
from proctor.model.lazy_cases import may_claim
from proctor.model.show import count_rest
from proctor.runner.ports import Judge

if TYPE_CHECKING:
    from proctor.judge.gated_model import JudgeSpending
    from proctor.judge.stamps import Form
    from proctor.llm.connections import MakeTransport
    from proctor.llm.ports import ChatModel, ChatReply, ChatRequest


_CHARACTERS_PER_TOKEN = 4
_INSTRUCTION_TOKENS = 700
"""The approximate tokens of the instruction and the reply format."""


def has_judged_assertions(suite: Suite) -> bool:
    """Return whether a suite has assertions for a judge."""
    return may_claim(suite.cases, _is_judged) and any(_is_judged(a) for case in suite.cases for a in case.assertions)


def _is_judged(assertion: Assertion) -> bool:
    return default_registry().get_for(assertion.check, assertion.spec).judged


def needs_judge(assertion: Assertion, registry: Registry | None = None) -> bool:
    """Return whether an assertion cannot be decided without a judge."""
    if not (registry or default_registry()).get_for(assertion.check, assertion.spec).judged:
        return False
    needs = getattr(assertion.spec, "needs_judge", None)
    return bool(needs()) if callable(needs) else True


def list_cases_for_judge(suite: Suite) -> list[Case]:
    """Return the cases with an assertion that only a judge can decide."""
    if not may_claim(suite.cases, _is_judged):
        return []
    return [case for case in suite.cases if case.skip is None and any(needs_judge(a) for a in case.assertions)]


def require_judge(suite: Suite, judge: object | None, *, allow_missing: bool = False) -> None:
    """Raise `InputError` if a judge is needed and none is configured."""
    cases = [] if allow_missing else list_cases_for_judge(suite)
    if judge is not None:
        # One of several suites may have none.
        cases = [case for case in cases if isinstance(judge, CombinedJudges) and not judge.has(case.id)]
    if cases:
        names = ", ".join(repr(case.id) for case in cases[:5]) + count_rest(len(cases), 5)
        raise InputError(
            f"claims of {len(cases)} case{'s' if len(cases) > 1 else ''} need a judge, and none is configured: {names}\n"
            "  name one: `judge: {model: ...}` in the suite or in proctor.yaml, or the variable PROCTOR_JUDGE_MODEL\n"
            "  --allow-missing-judge runs all the same; those assertions are then errors"
        )


class Estimate(msgspec.Struct, frozen=True):
    """The estimated cost of judging a suite, before the run."""

    calls: int
    """If every answer fits into one request; long answers take several, and so does a reply that must be repaired."""
    tokens: int
    """A lower bound, because the answers of the agents are not known yet."""


def estimate_judging(suite: Suite, settings: JudgeSettings, *, jurors: int = 1, repeat: int = 1) -> Estimate:
    """Return how many requests and tokens judging `suite` will take, ignoring cached replies."""
    calls = tokens = 0
    for case in suite.cases:
        judged = [a for a in case.assertions if needs_judge(a)] if case.skip is None else []
        if not judged:
            continue
        groups = {group for a in judged for group in _list_groups(a)}
        times = max(repeat, case.repetitions or 1) * settings.samples * jurors
        claim_tokens = sum(len(msgspec.json.encode(a.spec)) for a in judged) // _CHARACTERS_PER_TOKEN
        calls += len(groups) * times
        tokens += (len(groups) * _INSTRUCTION_TOKENS + claim_tokens) * times
    return Estimate(calls, tokens)


_MATERIAL = ("kind", "subject", "target_node", "output_key", "reference")
"""Fields of a claim that, with those beginning with `show_`, determine what the judge sees."""


def _list_groups(assertion: Assertion) -> Iterator[tuple[Json, ...]]:
    """Yield the keys of the requests of a claim: what the judge sees, and whether it answers yes or no, as for constraints."""
    spec = assertion.spec
    if not hasattr(spec, "negative_constraints"):
        # Claims of other checks show different material, even if two happen to show the same.
        count: Callable[[], int] = getattr(spec, "count_requests", lambda: 1)
        yield from ((id(assertion), number) for number in range(count()))
        return
    fields = [*_MATERIAL, *(name for name in getattr(spec, "__struct_fields__", ()) if name.startswith("show_"))]
    visible = (assertion.turn, *(getattr(spec, name, None) for name in fields))
    yield (*visible, getattr(spec, "threshold", None) is None)
    if getattr(spec, "negative_constraints", ()):
        yield (*visible, True)


CACHE_FOLDER = "judge"
"""The folder of cached replies, below the folder of the workspace's results."""


class JudgeSource(msgspec.Struct, frozen=True, kw_only=True):
    """The settings and environment from which a judge is opened."""

    workspace: Workspace
    references: References
    environment: Mapping[str, str]
    """The variables with the keys and addresses that providers' own tools read."""
    home: Path
    """The folder that contains the cache of replies."""
    offline: bool = False
    """Whether everything comes from a recording, so that no key is needed."""
    transport: MakeTransport | None = None
    """How connections are made; None: the default."""
    trust: Trust | None = None
    """Which suites are trusted; None: as for commands that only read."""


class OpenedJudge(msgspec.Struct, frozen=True, kw_only=True):
    """An opened judge, and its secrets."""

    judge: Judge
    settings: JudgeSettings
    models: tuple[str, ...]
    secrets: frozenset[str]
    prompt: str = ""
    """The version and the digest of the prompt."""
    warning: str | None = None
    """Why its verdicts have no calibration."""
    priced: frozenset[str] = frozenset()
    """Its models with prices in their own settings."""
    parts: tuple[tuple[Suite, OpenedJudge], ...] = ()
    """For several suites: the judge of each."""
    spent: JudgeSpending | None = None
    """The usage so far; for several suites, each judge in `parts` has its own."""
    ask: Callable[[ChatRequest], Awaitable[ChatReply]] | None = None
    """Sends another request to the first model, within the same budget; raises `TargetError`."""


def open_suite_judge(
    suite: Suite,
    home: Path,
    environment: Mapping[str, str],
    options: JudgeOptions = NO_OPTIONS,
    trust: Trust | None = None,
    *,
    references: References | None = None,
    offline: bool = False,
) -> OpenedJudge | None:
    """Open the judge of a suite; None if the suite does not need one, or none is configured. Raises `InputError`.

    Each of several suites has the judge that it would have alone. Unless `trust` allows it, a judge that the suite itself describes is
    rejected. `references` resolve `${NAME}`, by default from the environment.
    """
    trust = trust or trust_for("reading", home=home, environment=environment)
    parts = split_suite(suite, JUDGE_KEYS)
    opened: list[tuple[Suite, OpenedJudge]] = []
    # A call limit applies to the whole run, so the judges of all suites share one counter.
    spent = None
    if options.max_calls is not None:
        from proctor.judge.gated_model import JudgeSpending  # only needed with a judge

        spent = JudgeSpending()
    for part in parts:
        if not has_judged_assertions(part):
            continue
        try:
            workspace = workspace_for(part, home)
            # In a replay no judge is called, so nothing is rejected.
            if not offline:
                refuse_untrusted([(part, name_judge(part, workspace, options.model, trust))], trust)
            known = references or References(dict(environment))
            source = JudgeSource(workspace=workspace, references=known, environment=environment, home=home, offline=offline, trust=trust)
            judge = open_judge(part, source, options=options, spent=spent)
        except InputError as error:
            raise name_suite_in_error(error, part, parts) from None
        if judge is not None:
            opened.append((part, judge))
    if len(parts) == 1 or not opened:
        return opened[0][1] if opened else None
    return OpenedJudge(
        judge=CombinedJudges([judge.judge for _, judge in opened], {case.id: judge.judge for part, judge in opened for case in part.cases}),
        settings=opened[0][1].settings,
        models=tuple(dict.fromkeys(model for _, judge in opened for model in judge.models)),
        secrets=frozenset[str]().union(*(judge.secrets for _, judge in opened)),
        priced=frozenset[str]().union(*(judge.priced for _, judge in opened)),
        warning="\n".join(dict.fromkeys(judge.warning for _, judge in opened if judge.warning is not None)) or None,
        parts=tuple(opened),
    )


def open_judge(
    suite: Suite | None,
    source: JudgeSource,
    *,
    options: JudgeOptions = NO_OPTIONS,
    spent: JudgeSpending | None = None,
    plain: bool | None = None,
) -> OpenedJudge | None:
    """Open the configured judge, or return None if there is none. Raises `InputError` for one that cannot work.

    Requests are counted in `spent`. Faults are described in plain words unless the suite is one of MCPLab, whose authors know its terms;
    `plain` decides if no suite is given.
    """
    workspace, environment = source.workspace, source.environment
    is_mcplab = suite is not None and suite.dialect == "mcplab"
    judge_model = (
        _open_mcplab_agent(suite, source) if suite is not None and is_mcplab and options.model is None and workspace.judge is None else None
    )
    prices: dict[str, tuple[float, float]] = {}
    forms: set[Form] = set()
    if judge_model is not None:
        models, settings, secrets = judge_model
        caches = options.cache
    else:
        section = read_judge_section(workspace, source.references)
        names = (options.model,) if options.model is not None else section.model
        chosen = options.model is not None
        described = [find_judge_model(name, workspace, source.references, environment, chosen=chosen) for name in names]
        if not described:
            from_environment = find_environment_model(environment, "PROCTOR_JUDGE_MODEL", "PROCTOR_JUDGE")
            if from_environment is None:
                return None
            described = [fill_from_environment(from_environment, environment)]
        models = [built_model(each, offline=source.offline, transport=source.transport) for each in described]
        secrets = {secret for each in described for secret in each.list_secrets()}
        for each in described:
            if each.input_price is not None and each.output_price is not None:
                prices[each.model] = (each.input_price, each.output_price)
        settings = make_judge_settings(section, workspace, suite)
        caches = section.cache and options.cache
        if suite is not None and may_claim(suite.cases, _is_judged):
            # Each form in which criteria are judged has its own calibration.
            specs = [a.spec for case in suite.cases for a in case.assertions if hasattr(a.spec, "negative_constraints")]
            forms = {"yes_no" if getattr(spec, "threshold", None) is None else "score" for spec in specs}
    from proctor.judge.cached import FolderCache  # only needed with a judge
    from proctor.judge.llm_judge import LlmJudge
    from proctor.judge.prompt import load_prompt
    from proctor.judge.stamps import find_stamps

    settings = apply_options(settings, options)
    labels, prompt = tuple(f"{each.provider}/{each.name}" for each in models), load_prompt(settings.prompt, settings.decisions).name
    stamps, warning = find_stamps(source.home, labels, prompt, forms)
    memory = (options.memory or source.home) if caches else None
    judge = LlmJudge(
        models,
        settings,
        cache=FolderCache(memory / CACHE_FOLDER) if memory is not None else None,
        costs=prices,
        spent=spent,
        takes_first_entry=is_mcplab,
        plain_words=not is_mcplab if plain is None else plain,
        calibrations={form: stamp.describe() for form, stamp in stamps.items()},
    )
    return OpenedJudge(
        judge=judge,
        settings=settings,
        models=labels,
        secrets=frozenset(secrets),
        prompt=prompt,
        priced=frozenset(label for label, each in zip(labels, models, strict=True) if each.name in prices),
        # A replay asks no model.
        warning=None if source.offline else warning,
        spent=judge.spent,
        ask=judge.ask_model,
    )


def _open_mcplab_agent(suite: Suite, source: JudgeSource) -> tuple[list[ChatModel], JudgeSettings, set[str]] | None:
    from proctor.actions.mcplab.access import mcplab_judge  # only MCPLab's own suites need it

    allowed = source.trust or trust_for("reading", home=source.home, environment=source.environment)
    return mcplab_judge(suite, source.environment, offline=source.offline, may_read=allowed.may_read)


def open_home_judge(
    home: Path,
    environment: Mapping[str, str],
    *,
    options: JudgeOptions = NO_OPTIONS,
    spent: JudgeSpending | None = None,
    plain: bool | None = None,
) -> OpenedJudge | None:
    """Open the judge of the workspace file next to `home` or of the environment. Raises `InputError`."""
    variables = dict(environment)
    source = JudgeSource(workspace=workspace_file(home), references=References(variables), environment=variables, home=home)
    opened = open_judge(None, source, options=options, spent=spent, plain=plain)
    if opened is not None and opened.spent is not None and source.workspace.prices is not None:
        opened.spent.prices = source.workspace.prices
    return opened


JudgeLike = object
"""A judge, or something to make one from: a function of a question, a mapping like `judge:`, or `provider/name`."""


def make_judge(judge: JudgeLike, environment: Mapping[str, str], *, home: Path) -> Judge:
    """Return the judge given in Python code: a judge, or one made from a function, a mapping or a name. Raises `InputError`."""
    # Tested first, because a judge may also be callable.
    if hasattr(judge, "judge"):
        return cast(Judge, judge)
    if callable(judge):
        from proctor.judge.scripted import ScriptedJudge  # for tests and rules written in Python

        return ScriptedJudge(cast(Callable[..., Json], judge))
    settings: dict[str, Json] = {"model": judge} if isinstance(judge, str) else dict(cast(Mapping[str, Json], judge))
    models: dict[str, Section] = {}
    model: Json = settings.get("model")
    # A model or a jury of several, each by name or by settings.
    jury: list[Json] = model if isinstance(model, list) else [model]
    for number, each in enumerate(jury, 1):
        if isinstance(each, Mapping):
            models[f"judge {number}"] = Section.of(each)
    settings["model"] = [f"judge {number}" if isinstance(each, Mapping) else each for number, each in enumerate(jury, 1)]
    if model is None:
        del settings["model"]
    workspace = Workspace(models=models, judge=Section.of(settings))
    opened = open_judge(None, JudgeSource(workspace=workspace, references=References(environment), environment=environment, home=home))
    if opened is None:
        raise InputError("judge: a model is needed, as in {'model': 'openai/some-model'}")
    return opened.judge
