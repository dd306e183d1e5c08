"""A scorer that uses a judge: the options of MCPJam's `judgeScorer`, with our judge.

The judge gets the transcript as data and gives a score from 0 to 1; the threshold alone decides. A missing score is an error of the row,
never a low score. Advisory by default, because the judgement of a model is an opinion.

Connections belong to an event loop, and a scorer outlives many loops: a model given by name is opened and closed for each question.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from proctor.cassettes.ports import LIVE
from proctor.evals.agents.models import CustomProviders, make_model
from proctor.evals.grading.score_rows import (
    Policy,
    Role,
    ScoreDefinition,
    ScoreOutcome,
    canonical_digest,
    make_error_outcome,
    scored,
    skipped,
)
from proctor.evals.grading.scorers import Scorer, ScorerContext, check_limit
from proctor.judge.llm_judge import LlmJudge
from proctor.judge.prompt import load_prompt
from proctor.judge.request import render_request
from proctor.judge.settings import JudgeSettings
from proctor.llm.ports import ChatModel
from proctor.model.evidence import Json, ToolCall
from proctor.model.judgement import Material, Opinion, Question
from proctor.model.show import show
from proctor.runner.ports import Judge

DEFAULT_THRESHOLD: Final = 0.7
BY_RUBRIC: Final = "What the agent did, as the transcript shows it, meets every point of the rubric."


def judge_scorer(
    *,
    id: str,
    model: str | ChatModel | None = None,
    judge: Judge | None = None,
    api_key: str | None = None,
    base_url: str | None = None,
    custom_providers: CustomProviders | None = None,
    rubric: Sequence[str] | None = None,
    prompt: str | None = None,
    threshold: float = DEFAULT_THRESHOLD,
    role: Role = "advisory",
    on_error: Policy | None = None,
    on_skipped: Policy | None = None,
    timeout_ms: float = 60_000,
    label: str | None = None,
    scorer_version: str = "1",
) -> Scorer:
    """Return a scorer that lets a model decide whether the transcript meets every point of a rubric, or answer `prompt`.

    `model` is `provider/name` with the key from `api_key` or the environment, or a chat model; instead, `judge` may be any judge, such as
    a jury. Raises `ValueError`, `TypeError` or `SpecError` for invalid options.
    """
    points, instruction = _read_rubric(rubric), (prompt or "").strip()
    _require_one("rubric and prompt", bool(points), bool(instruction))
    _require_one("model and judge", model is not None, judge is not None)
    check_limit(timeout_ms)
    custom = custom_providers or {}
    access = _JudgeAccess(model, judge, {"api_key": api_key, "base_url": base_url, "custom": custom}, timeout_ms / 1000)
    definition = ScoreDefinition(
        scorer_id=id.strip(),
        scorer_version=scorer_version,
        implementation_hash=access.hash_instruction(instruction or {"criterion": BY_RUBRIC, "rubric": points}),
        label=label,
        deterministic=False,
        pass_threshold=threshold,
        role=role,
        on_error=on_error,
        on_skipped=on_skipped,
        model=access.name,
    )

    async def score(context: ScorerContext) -> ScoreOutcome:
        if not context.prompts:
            return skipped("the agent got no prompt, so there is nothing to judge")
        question = Question(
            criterion=instruction or BY_RUBRIC,
            label=definition.label or definition.scorer_id,
            rubric=tuple(points),
            threshold=threshold,
            reference=context.expected_output,
            material=Material(subject=build_transcript(context), name="transcript"),
        )
        return await access.ask(question, context)

    return Scorer(definition=definition, score=score, timeout_ms=timeout_ms)


class _JudgeAccess:
    def __init__(self, model: str | ChatModel | None, judge: Judge | None, access: dict[str, Any], timeout_s: float) -> None:
        self._model, self._judge, self._access = model, judge, access
        self._settings, self._prompt = JudgeSettings(timeout_s=timeout_s), load_prompt()
        if isinstance(judge, LlmJudge):
            self._settings, self._prompt = judge.settings, judge.prompt
        if isinstance(model, str):
            self.name = model
            self._open_model(model)  # an invalid name is rejected now, not in the middle of a run; nothing is connected yet
        elif model is not None:
            self.name = f"{model.provider}/{model.name}"
        else:
            self.name = str(getattr(judge, "name", None) or type(judge).__name__)

    def _open_model(self, name: str) -> ChatModel:
        return make_model(name, **self._access, environment=os.environ)

    def hash_instruction(self, instruction: Json) -> str:
        """Return the digest that identifies such a scorer: instruction, template, model and the judge's own settings."""
        parts: dict[str, Json] = {"templateVersion": self._prompt.version, "instruction": instruction, "model": self.name}
        if isinstance(self._judge, LlmJudge):
            parts["settings"] = msgspec.to_builtins(self._settings)
        return canonical_digest(parts)

    async def ask(self, question: Question, context: ScorerContext) -> ScoreOutcome:
        model = self._open_model(self._model) if isinstance(self._model, str) else self._model
        judge = self._judge if model is None else LlmJudge([model], self._settings, plain_words=True)
        assert judge is not None
        try:
            case = context.scenario.key or context.scenario.title
            return self._read_opinion(question, await judge.judge([question], case=case, attempt=context.iteration, tape=LIVE))
        finally:
            # A model or a judge that was given is closed by its owner.
            if isinstance(self._model, str):
                await judge.close()

    def _read_opinion(self, question: Question, opinions: Sequence[Opinion]) -> ScoreOutcome:
        if len(opinions) != 1:
            return make_error_outcome(f"the judge gave {len(opinions)} opinions on one question", model=self.name)
        opinion = opinions[0]
        details: dict[str, Json] = {**opinion.details, **({} if opinion.code is None else {"code": opinion.code})}
        if opinion.outcome == "error":
            return make_error_outcome(opinion.reason or "the judge gave no reason", model=self.name, details=details)
        return scored(opinion.score, opinion.reason, model=self.name, prompt_hash=self._hash_question(question), details=details)

    def _hash_question(self, question: Question) -> str:
        """Return the digest of what the judge sees, which is the same for the same question."""
        settings = self._settings
        if self._judge is not None and not isinstance(self._judge, LlmJudge):
            return canonical_digest(msgspec.to_builtins(question))
        request = render_request((question,), prompt=self._prompt, max_chars=settings.max_chars, order_seed=settings.order_seed)
        return canonical_digest([{"role": message.role, "text": message.text} for message in request.messages])


def _require_one(names: str, first: bool, second: bool) -> None:
    if first == second:
        raise ValueError(f"a judge scorer needs exactly one of {names}, found {'both' if first else 'neither'}")


def _read_rubric(rubric: object) -> list[str]:
    if rubric is None:
        return []
    if isinstance(rubric, (str, bytes)) or not isinstance(rubric, Sequence):
        raise TypeError(f"rubric: expected a list of points, found {show(rubric)}")
    points: list[Any] = list(cast("Sequence[object]", rubric))
    for point in points:
        if not isinstance(point, str) or not point.strip():
            raise TypeError(f"rubric: expected texts, found {show(point)}")
    return points


def build_transcript(context: ScorerContext) -> dict[str, Json]:
    """Return an iteration as JSON: the task, what was expected and done, all messages, and the last answer.

    JSON instead of plain text, in which an answer could forge headings. Nothing is left out; the judge's own limit cuts long values and
    marks the cut.
    """
    transcript, usage = context.transcript, context.usage
    built: dict[str, Json] = {"scenario": context.scenario.title}
    if context.scenario.is_negative_test:
        built["negative_test"] = "the right thing is to refuse or to avoid the action"
    if context.expected_tool_calls:
        built["expected_tool_calls"] = [_describe_call(call) for call in context.expected_tool_calls]
    built["tool_calls_made"] = [_describe_call(call) for call in transcript.tool_calls]
    if transcript.tool_errors:
        built["tool_failures"] = [
            {"tool": error.tool_name, "kind": error.kind or "error", "message": error.message} for error in transcript.tool_errors
        ]
    built["conversation"] = [{"role": message.get("role"), "content": message.get("content")} for message in context.trace.messages]
    if transcript.final_assistant_message is not None:
        built["final_assistant_message"] = transcript.final_assistant_message
    if usage is not None:
        built["token_usage"] = {"input": usage.input_tokens, "output": usage.output_tokens, "total": usage.total()}
    return built


def _describe_call(call: ToolCall) -> dict[str, Json]:
    return {"tool": call.name, "arguments": call.arguments}
