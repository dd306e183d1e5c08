"""A judge made of chat models: asks, reads, asks once more where a reply is of no use, and makes opinions of the answers.

Questions about one material share a request, yes or no apart from scores; a case of MCPLab is one request. Every model of a jury is called
`samples` times. An undecided question is an opinion `error` with its own code, and affects no other question. Only cancellation, and a tape
that cannot be written, end the judging.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from proctor.cassettes.ports import NoTape, Tape
from proctor.errors import SpecError, TargetError
from proctor.judge.bounds import split_windows
from proctor.judge.cached import ReplyCache, encode_canonical, make_key
from proctor.judge.gate import RequestGate
from proctor.judge.gated_model import GatedModel, JudgeSpending, RememberedModel
from proctor.judge.prompt import load_prompt
from proctor.judge.reply import Fault, Item, ReadReply, clean_text, is_distinctive, make_spoiled, read_reply
from proctor.judge.request import RenderedRequest, render_request
from proctor.judge.settings import JudgeSettings
from proctor.judge.votes import Ballot, Prices, combine_ballots, compute_cost, sum_usage, write_usage
from proctor.llm.ports import ChatModel, ChatReply, ChatRequest
from proctor.llm.taped import TapedModel
from proctor.model.evidence import Json
from proctor.model.judgement import Material, Opinion, Question, add_spending

_T = TypeVar("_T")

_NEED_WHOLE_CONTEXT = ("faithful_to_context", "context_relevance")
"""Rubrics about the context, of which a part decides nothing."""
MAX_STORED = 4_000
"""Characters of a raw reply that a verdict stores."""

_CODES = {
    "rate_limited": ("judge_rate_limited", "is rate limited"),
    "overloaded": ("judge_overloaded", "is overloaded"),
    "timeout": ("judge_timeout", "did not answer in time"),
    "transport": ("judge_unreachable", "could not be reached"),
    "unauthorized": ("judge_unauthorized", "does not accept the key"),
    "bad_request": ("judge_bad_request", "refused the request"),
    "too_large": ("judge_too_large", "answered too much"),
    "judge_budget": ("judge_budget", "was not called"),
    "cassette_miss": ("cassette_miss", "has no recorded reply"),
}
_ABOUT_IMAGES = re.compile(r"image|vision|visual|multimodal|modalit|attachment|content.{0,20}(?:string|type)", re.IGNORECASE)
"""How providers word that a model takes text alone."""
_OTHERWISE = ("judge_unreachable", "gave no answer that can be used")

_REPAIRS = {
    "judge_not_json": "The reply was not one single JSON object.",
    "judge_bad_results": "The reply had no list under the key `results`.",
    "judge_bad_item": "An entry of `results` did not have the demanded fields, or had another id. Escape quotation marks inside of texts.",
    "judge_missing_result": "There was no entry for these ids.",
    "judge_contradiction": "There were several entries for these ids, which say different things.",
    "judge_repeated_key": "An object of the reply had the same key twice. Escape quotation marks inside of texts.",
    "judge_unfounded": "A quote was not in the data. Copy quotes word for word, or give none.",
    "judge_bad_score": "A score was not a number from 0 to 1.",
    "judge_cut_off": "The reply was cut off because it was too long. Give reasons of a few words.",
    "judge_tool_call": "The reply asked for a tool to be called. There are no tools.",
}
"""What a judge reads of a reply that was of no use, where the fault has no words of its own."""


class _Group(msgspec.Struct, frozen=True):
    """Questions that share a request, and their positions among all."""

    positions: list[int]
    questions: list[Question]


class _Try(msgspec.Struct, frozen=True):
    """One exchange with a model, and what could be read from it."""

    read: ReadReply
    wire: RememberedModel
    number: int
    """Of the request, among those of this judge."""
    reply: ChatReply | None = None


class LlmJudge:
    """Judges by asking chat models; fits `proctor.runner.ports.Judge`."""

    def __init__(
        self,
        models: Sequence[ChatModel],
        settings: JudgeSettings,
        *,
        cache: ReplyCache | None = None,
        costs: Mapping[str, Prices] = {},
        spent: JudgeSpending | None = None,
        takes_first_entry: bool = False,
        calibrations: Mapping[str, dict[str, Json]] = {},
    ) -> None:
        """With `spent` given, several judges count together, and a limit of requests holds for all of them.

        With `takes_first_entry` a judge that contradicts itself about a claim is taken at its first word, as MCPLab does. `calibrations`,
        by form (`yes_no`, `score`), are stamped on verdicts, those of the same form first.
        """
        if not models:
            raise SpecError("a judge needs a model", field="model")
        self.settings = settings
        self.name = settings.name or ", ".join(model.name for model in models)
        self.prompt = load_prompt(settings.prompt, settings.decisions)
        self.spent = JudgeSpending() if spent is None else spent
        self._cache = cache
        self._takes_first_entry = takes_first_entry
        self._costs = costs
        # Requests are made ready while others are under way, and no more of them than will soon be sent.
        self._door = RequestGate(2 * settings.concurrency)
        self._numbers = itertools.count(1)
        self._under_way: dict[str, asyncio.Event] = {}
        """Requests that others of the same kind wait for."""
        gate = RequestGate(settings.concurrency)
        self._models = [GatedModel(model, settings, gate=gate, spent=self.spent, prices=costs.get(model.name)) for model in models]
        self._who: dict[str, Json] = {
            "judge": self.name,
            "models": [model.name for model in models],
            "provider": ", ".join(dict.fromkeys(model.provider for model in models)),
            "prompt_version": self.prompt.version,
        }
        self._calibrations = calibrations

    async def judge(self, questions: Sequence[Question], *, case: str, attempt: int, tape: Tape) -> list[Opinion]:
        """Return one opinion per question, in order."""
        windows: dict[int, list[Material]] = {}
        split: list[list[Question]] = []
        for question in questions:
            parts: list[Material] = []
            if question.forbidden or question.grounded:
                # What must not be there may be in any part, so all of them are shown; once for each object, since constraints share it.
                found = windows.get(id(question.material))
                parts = found if found is not None else split_windows(question.material, max_chars=self.settings.max_chars)
                windows[id(question.material)] = parts
            split.append([msgspec.structs.replace(question, material=part) for part in parts] or [question])
        opinions = iter(await self._judge_all([each for some in split for each in some], attempt, tape))
        return [_combine_windows([next(opinions) for _ in some]) for some in split]

    async def _judge_all(self, questions: Sequence[Question], attempt: int, tape: Tape) -> list[Opinion]:
        opinions: dict[int, Opinion] = {}
        groups = _group_questions(questions)
        found = await _gather_all([self._judge_group(group, attempt, tape) for group in groups])
        for group, each in zip(groups, found, strict=True):
            opinions.update(zip(group.positions, each, strict=True))
        return [opinions[position] for position in range(len(questions))]

    async def ask_model(self, request: ChatRequest) -> ChatReply:
        """Ask the first model something else, within the same budget. Raises `TargetError`."""
        return await self._models[0].complete(request)

    async def close(self) -> None:
        """Close the connections of every model, also where one of them fails to."""
        # All of them first: an error of one must neither leave the others open nor keep the cache from being written.
        ends = await asyncio.gather(*(model.inner.close() for model in self._models), return_exceptions=True)
        if self._cache is not None:
            await asyncio.to_thread(self._cache.close)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    async def _judge_group(self, group: _Group, attempt: int, tape: Tape) -> list[Opinion]:
        """Return the opinions on one group, once there is a place for it."""
        await self._door.enter()
        try:
            return await self._ask_jury(group, attempt, tape)
        finally:
            self._door.leave()

    async def _ask_jury(self, group: _Group, attempt: int, tape: Tape) -> list[Opinion]:
        rendered = self._render_request(group.questions)
        samples = range(self.settings.samples)
        ballots = await _gather_all(
            [
                self._collect_ballots(
                    group.questions, rendered, juror, {"member": member, "sample": sample, **self._describe_options(attempt)}, tape
                )
                for member, juror in enumerate(self._models)
                for sample in samples
            ]
        )
        return [
            self._make_opinion(question, [each[position] for each in ballots], rendered, position, len(group.questions))
            for position, question in enumerate(group.questions)
        ]

    def _make_opinion(self, question: Question, ballots: list[Ballot], rendered: RenderedRequest, position: int, together: int) -> Opinion:
        opinion = combine_ballots(question, ballots, self.settings)
        details: dict[str, Json] = {**self._who, "check_id": f"agent-check-{position + 1}", **opinion.details}
        form = "yes_no" if question.threshold is None else "score"
        # Calibrations measure criteria; rubrics and choices are worded differently.
        calibration = None if question.choices or question.worded_by else self._calibrations.get(form)
        if calibration is not None:
            details["calibration"] = calibration
        if together > 1:
            # Tokens and cost are those of the whole request; to add them up, a reader needs the number of questions that share them.
            details["shared_by"] = together
        if rendered.cuts:
            details["cuts"] = list(rendered.cuts)
            whole = question.choices or question.grounded or question.worded_by in _NEED_WHOLE_CONTEXT
            if whole or (opinion.outcome == "pass" and (question.forbidden or rendered.cuts_subject)):
                # What decides may be in the part that was not shown: of the answer for any claim, of the context for one of absence.
                shown = "; ".join(rendered.cuts)
                reason = f"only a part of the material was shown ({shown}), so the rest is undecided; raise `max_chars` of the judge"
                return Opinion(outcome="error", code="judge_cut_material", reason=reason, details=details)
        return msgspec.structs.replace(opinion, details=details)

    def _describe_options(self, attempt: int) -> dict[str, Json]:
        how: dict[str, Json] = {"structured": self.settings.structured, "prompt": self.prompt.version}
        if not self.settings.share_over_repeats:
            # Repeats show whether the judge decides the same again; one cached reply for all would make them agree.
            how["attempt"] = attempt
        return how

    def _render_request(self, questions: Sequence[Question], repair: str | None = None) -> RenderedRequest:
        settings = self.settings
        return render_request(questions, prompt=self.prompt, max_chars=settings.max_chars, order_seed=settings.order_seed, repair=repair)

    async def _collect_ballots(
        self, questions: list[Question], rendered: RenderedRequest, juror: GatedModel, options: dict[str, Json], tape: Tape
    ) -> list[Ballot]:
        """Return the answers of one model to all questions of a group, after one repair where that is needed."""
        wires: list[RememberedModel] = []
        try:
            return await self._ask_and_repair(wires, questions, rendered, juror, options, tape)
        finally:
            # However it ended: others who ask the same would wait for this request for ever.
            for wire in wires:
                wire.finish()

    async def _ask_and_repair(
        self,
        wires: list[RememberedModel],
        questions: list[Question],
        rendered: RenderedRequest,
        juror: GatedModel,
        options: dict[str, Json],
        tape: Tape,
    ) -> list[Ballot]:
        first = await self._try_once(wires, questions, rendered, juror, options, tape)
        tries = [first]
        verdicts: list[Item | Fault] = list(first.read.items)
        wanting = first.read.list_unanswered()
        # Once only, and not after a content filter, which the same material meets again. Without a reply there is nothing to mend: faults
        # of the transport were tried again below.
        if wanting and first.reply is not None and first.read.fault_code != "judge_refused":
            words = dict.fromkeys(item.repair or _REPAIRS[item.code] for item in first.read.items if isinstance(item, Fault))
            again = [questions[position] for position in wanting]
            second = await self._try_once(wires, again, self._render_request(again, " ".join(words)), juror, options, tape)
            tries.append(second)
            # Without a second reply the faults of the first remain: they are more specific than a missing reply.
            if second.reply is not None:
                for position, item in zip(wanting, second.read.items, strict=True):
                    before = verdicts[position]
                    # A judge that invented a passage does not found its answer by leaving the passage out.
                    is_dropped = isinstance(item, Item) and not any(map(is_distinctive, item.quotes))
                    if not (is_dropped and isinstance(before, Fault) and before.code == "judge_unfounded"):
                        verdicts[position] = item
        self._remember_replies(tries)
        return self._write_ballots(juror, verdicts, tries, repaired=wanting)

    def _remember_replies(self, tries: Sequence[_Try]) -> None:
        """Cache usable replies once everything is answered; an unanswered question is sent again next time."""
        if tries[-1].read.list_unanswered():
            return
        for each in tries:
            if each.reply is not None and each.read.fault is None:
                each.wire.remember_reply(each.reply)

    def _write_ballots(
        self, juror: GatedModel, verdicts: Sequence[Item | Fault], tries: Sequence[_Try], *, repaired: Sequence[int]
    ) -> list[Ballot]:
        replies = [each.reply for each in tries if each.reply is not None]
        usages = [reply.usage for reply in replies if reply.usage is not None]
        usage = sum_usage(usages) if usages else None
        cost = compute_cost(usage, self._costs.get(juror.name))
        texts = tuple(clean_text(reply.text, MAX_STORED) for reply in replies)
        cached = all(each.wire.cached for each in tries)
        notes = tuple(note for reply in replies for note in reply.notes)
        again = set(repaired) if len(tries) > 1 else ()
        requests = tuple(self._describe_request(juror, each) for each in tries if each.reply is not None and not each.wire.cached)
        return [
            Ballot(
                model=juror.name,
                verdict=item,
                replies=texts,
                usage=usage,
                cost=cost,
                requests=requests,
                cached=cached,
                repaired=position in again,
                notes=notes,
            )
            for position, item in enumerate(verdicts)
        ]

    def _describe_request(self, juror: GatedModel, sent: _Try) -> dict[str, Json]:
        assert sent.reply is not None, "only what was answered is paid for"
        usage = sent.reply.usage
        request: dict[str, Json] = {"id": f"{self.name}#{sent.number}", "model": juror.name}
        if usage is not None:
            request["usage"] = write_usage(usage)
        if (cost := compute_cost(usage, self._costs.get(juror.name))) is not None:
            request["cost"] = cost
        return request

    async def _try_once(
        self,
        wires: list[RememberedModel],
        questions: Sequence[Question],
        rendered: RenderedRequest,
        juror: GatedModel,
        options: dict[str, Json],
        tape: Tape,
    ) -> _Try:
        request, number = self._make_request(rendered, juror, options["sample"]), next(self._numbers)
        key = ""
        if self._cache is not None:
            address: Json = getattr(juror.inner, "address", None)
            key = make_key(request, provider=juror.provider, model=juror.name, address=address, options=options)
        wire = RememberedModel(juror, self._cache, key, self.spent, self._under_way)
        wires.append(wire)
        try:
            # A tape that only lets through need not have everything written out for it.
            reply = await (wire if isinstance(tape, NoTape) else TapedModel(wire, tape)).complete(request)
        except TargetError as error:
            code, what = _CODES.get(error.code, _OTHERWISE)
            if rendered.has_images and code == "judge_bad_request" and _ABOUT_IMAGES.search(error.message):
                code, what = "judge_no_images", "takes no images"
            who = f'judge "{self.name}"' if juror.name == self.name else f'judge "{self.name}" (model {juror.name})'
            return _Try(make_spoiled(Fault(code, f"Agent check failed: {who} {what}: {error.message}"), len(questions)), wire, number)
        return _Try(self._read_answer(reply, questions, rendered), wire, number, reply)

    def _make_request(self, rendered: RenderedRequest, juror: GatedModel, sample: int) -> ChatRequest:
        settings = self.settings
        request = ChatRequest(
            messages=rendered.messages,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            # The same seed again would be the same answer again.
            seed=None if settings.seed is None else settings.seed + sample,
            answer_schema=None if settings.structured == "text" else rendered.schema,
            answer_name=rendered.schema_name,
        )
        # The model's own settings are part of the request.
        fill_defaults = getattr(juror.inner, "fill_defaults", None)
        return request if fill_defaults is None else fill_defaults(request)

    def _read_answer(self, reply: ChatReply, questions: Sequence[Question], rendered: RenderedRequest) -> ReadReply:
        unusable: Fault | None = None
        who = f'Agent check failed: judge "{self.name}"'
        if reply.finish == "content_filter":
            unusable = Fault("judge_refused", f"{who} did not answer: a content filter held the reply back")
        elif reply.tool_calls:
            unusable = Fault("judge_tool_call", f"{who} requested a tool call instead of answering")
        elif reply.finish == "length":
            unusable = Fault("judge_cut_off", f"{who} was cut off at the limit of {self.settings.max_tokens} tokens for a reply")
        if unusable is not None:
            return make_spoiled(unusable, len(questions))
        return read_reply(reply.text, questions, rendered.ids, self.name, material=rendered.line, takes_first_entry=self._takes_first_entry)


def _combine_windows(opinions: list[Opinion]) -> Opinion:
    """Return one opinion on all parts: what is violated in any of them is violated, and only what is decided in all of them passes."""
    if len(opinions) == 1:
        return opinions[0]
    chosen = next((each for outcome in ("fail", "error") for each in opinions if each.outcome == outcome), opinions[0])
    details: dict[str, Json] = {**add_spending(chosen.details, opinions, opinions), "windows": [each.outcome for each in opinions]}
    return msgspec.structs.replace(chosen, details=details)


def _group_questions(questions: Sequence[Question]) -> list[_Group]:
    """Return the questions by material and by the kind of answer, in the order of the first of each."""
    groups: dict[tuple[bytes, bool, tuple[str, ...]], _Group] = {}
    names: dict[int, bytes] = {}
    for position, question in enumerate(questions):
        material = question.material
        name = names.get(id(material))
        if name is None:
            # Once for each object: the questions of a case usually share their material, which may be large.
            name = names[id(material)] = _digest_material(material) if len(questions) > 1 else b""
        group = groups.setdefault((name, question.threshold is None, tuple(question.choices)), _Group([], []))
        if group.questions and group.questions[0].material is not material:
            # One object for the whole group, so that `render_request` sees by identity that they share it.
            question = msgspec.structs.replace(question, material=group.questions[0].material)
        group.positions.append(position)
        group.questions.append(question)
    return list(groups.values())


def _digest_material(material: Material) -> bytes:
    """Return bytes that are the same for the same material. Python's own equality will not do: to it `true` equals 1."""
    try:
        return encode_canonical(material)
    except (RecursionError, TypeError, ValueError):
        # A value that cannot be encoded is identified by its object: only questions with the same object share a request.
        return b"%d" % id(material)


async def _gather_all(works: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Return the results of all, run side by side; where one fails the others are cancelled before that is raised."""
    if len(works) == 1:  # a task costs more than everything else here
        return [await works[0]]
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
