"""A judge made of chat models: asks, reads, asks once more where a reply is of no use, and makes opinions of the answers.

Questions about one material are asked together, yes or no apart from scores; a case of MCPLab is one request. Every model of a jury
is asked as often as the settings say. What cannot be decided is an opinion `error` with a code of its own, and touches nothing else. Only
cancellation, and a tape that cannot be written, end the judging.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from proctor.cassettes.ports import NoTape, Tape
from proctor.errors import SpecError, TargetError
from proctor.judge.cached import ReplyCache, canonical, key_of
from proctor.judge.gate import Gate
from proctor.judge.gated_model import GatedModel, RememberedModel, Spent
from proctor.judge.prompt import load_prompt
from proctor.judge.reply import Fault, Item, ReadReply, clean, read_reply, spoiled
from proctor.judge.request import Rendered, render
from proctor.judge.settings import JudgeSettings
from proctor.judge.votes import Ballot, Prices, combined, cost_of, total
from proctor.llm.ports import ChatModel, ChatReply, ChatRequest
from proctor.llm.taped import TapedModel
from proctor.model.evidence import Json
from proctor.model.judgement import Material, Opinion, Question

_T = TypeVar("_T")

MAX_KEPT = 4_000
"""Characters of a raw reply that a verdict keeps."""

_CODES = {
    "rate_limited": ("judge_rate_limited", "is asked too often"),
    "overloaded": ("judge_overloaded", "is overloaded"),
    "timeout": ("judge_timeout", "did not answer in time"),
    "transport": ("judge_unreachable", "could not be reached"),
    "unauthorized": ("judge_unauthorized", "does not accept the key"),
    "bad_request": ("judge_bad_request", "refused the request"),
    "judge_budget": ("judge_budget", "was not asked"),
    "cassette_miss": ("cassette_miss", "has no recorded reply"),
}
_OTHERWISE = ("judge_unreachable", "gave no answer that can be used")

_REPAIRS = {
    "judge_not_json": "The reply was not one single JSON object.",
    "judge_bad_results": "The reply had no list under the key `results`.",
    "judge_bad_item": "An entry of `results` did not have the demanded fields, each of its demanded type.",
    "judge_missing_result": "There was no entry for these ids.",
    "judge_bad_score": "A score was not a number from 0 to 1.",
    "judge_cut_off": "The reply was cut off because it was too long. Give reasons of a few words.",
    "judge_tool_call": "The reply asked for a tool to be called. There are no tools.",
}
"""What a judge is told of a reply that was of no use. Never the reply itself: it may carry what the agent wrote."""


class _Group(msgspec.Struct, frozen=True):
    """Questions that are asked together, and where they stand among all."""

    positions: list[int]
    questions: list[Question]


class _Try(msgspec.Struct, frozen=True):
    """One exchange with a model, and what could be read out of it."""

    read: ReadReply
    wire: RememberedModel
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
        spent: Spent | None = None,
    ) -> None:
        """With `spent` given, several judges count together, and a limit of requests holds for all of them."""
        if not models:
            raise SpecError("a judge needs a model", field="model")
        self.settings = settings
        self.name = settings.name or ", ".join(model.name for model in models)
        self.prompt = load_prompt(settings.prompt)
        self.spent = Spent() if spent is None else spent
        self._cache = cache
        self._costs = costs
        # Requests are made ready while others are under way, and no more of them than will soon be sent.
        self._door = Gate(2 * settings.concurrency)
        self._under_way: dict[str, asyncio.Event] = {}
        """Requests that others of the same kind wait for."""
        gate = Gate(settings.concurrency)
        self._models = [GatedModel(model, settings, gate=gate, spent=self.spent, prices=costs.get(model.name)) for model in models]
        self._who: dict[str, Json] = {
            "judge": self.name,
            "models": [model.name for model in models],
            "provider": ", ".join(dict.fromkeys(model.provider for model in models)),
            "prompt_version": self.prompt.version,
        }

    async def judge(self, questions: Sequence[Question], *, case: str, attempt: int, tape: Tape) -> list[Opinion]:
        """One opinion per question, in order."""
        opinions: dict[int, Opinion] = {}
        groups = _grouped(questions)
        heard = await _all([self._heard(group, attempt, tape) for group in groups])
        for group, found in zip(groups, heard, strict=True):
            opinions.update(zip(group.positions, found, strict=True))
        return [opinions[position] for position in range(len(questions))]

    async def close(self) -> None:
        """Give back the connections of every model, also where one of them fails to."""
        ends = await asyncio.gather(*(model.inner.close() for model in self._models), return_exceptions=True)
        if self._cache is not None:
            await asyncio.to_thread(self._cache.close)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    async def _heard(self, group: _Group, attempt: int, tape: Tape) -> list[Opinion]:
        """The opinions on one group: every model, every sample."""
        await self._door.enter()
        try:
            return await self._asked(group, attempt, tape)
        finally:
            self._door.leave()

    async def _asked(self, group: _Group, attempt: int, tape: Tape) -> list[Opinion]:
        rendered = self._rendered(group.questions)
        samples = range(self.settings.samples)
        ballots = await _all(
            [
                self._ballots(group.questions, rendered, juror, {"member": member, "sample": sample, **self._how(attempt)}, tape)
                for member, juror in enumerate(self._models)
                for sample in samples
            ]
        )
        return [
            self._opinion(question, [each[position] for each in ballots], rendered, position, len(group.questions))
            for position, question in enumerate(group.questions)
        ]

    def _opinion(self, question: Question, ballots: list[Ballot], rendered: Rendered, position: int, together: int) -> Opinion:
        opinion = combined(question, ballots, self.settings)
        details: dict[str, Json] = {**self._who, "check_id": rendered.ids[position], **opinion.details}
        if together > 1:
            # Tokens and cost are those of the whole request; whoever adds them up must know how many share them.
            details["shared_by"] = together
        if rendered.cuts:
            details["cuts"] = list(rendered.cuts)
        return msgspec.structs.replace(opinion, details=details)

    def _how(self, attempt: int) -> dict[str, Json]:
        how: dict[str, Json] = {"structured": self.settings.structured, "prompt": self.prompt.version}
        if not self.settings.share_over_repeats:
            how["attempt"] = attempt
        return how

    def _rendered(self, questions: Sequence[Question], repair: str | None = None) -> Rendered:
        settings = self.settings
        return render(questions, prompt=self.prompt, max_chars=settings.max_chars, order_seed=settings.order_seed, repair=repair)

    async def _ballots(
        self, questions: list[Question], rendered: Rendered, juror: GatedModel, asked: dict[str, Json], tape: Tape
    ) -> list[Ballot]:
        """What one model says once to all questions of a group, after a repair where it takes one."""
        wires: list[RememberedModel] = []
        try:
            return await self._ballots_over(wires, questions, rendered, juror, asked, tape)
        finally:
            for wire in wires:
                wire.done()

    async def _ballots_over(
        self,
        wires: list[RememberedModel],
        questions: list[Question],
        rendered: Rendered,
        juror: GatedModel,
        asked: dict[str, Json],
        tape: Tape,
    ) -> list[Ballot]:
        first = await self._tried(wires, questions, rendered, juror, asked, tape)
        tries = [first]
        said: list[Item | Fault] = list(first.read.items)
        wanting = first.read.wanting()
        if wanting and first.reply is not None and first.read.fault_code != "judge_refused":
            words = dict.fromkeys(_REPAIRS[item.code] for item in first.read.items if isinstance(item, Fault))
            again = [questions[position] for position in wanting]
            second = await self._tried(wires, again, self._rendered(again, " ".join(words)), juror, asked, tape)
            tries.append(second)
            if second.reply is not None:
                for position, item in zip(wanting, second.read.items, strict=True):
                    said[position] = item
        self._remember(tries)
        return self._written(juror, said, tries, repaired=wanting)

    def _remember(self, tries: Sequence[_Try]) -> None:
        """Keep what was of use, once everything is answered: what was left open is to be asked again another time."""
        if tries[-1].read.wanting():
            return
        for each in tries:
            if each.reply is not None and each.read.fault is None:
                each.wire.remember(each.reply)

    def _written(self, juror: GatedModel, said: Sequence[Item | Fault], tries: Sequence[_Try], *, repaired: Sequence[int]) -> list[Ballot]:
        replies = [each.reply for each in tries if each.reply is not None]
        usages = [reply.usage for reply in replies if reply.usage is not None]
        usage = total(usages) if usages else None
        cost = cost_of(usage, self._costs.get(juror.name))
        texts = tuple(clean(reply.text, MAX_KEPT) for reply in replies)
        cached = all(each.wire.cached for each in tries)
        notes = tuple(note for reply in replies for note in reply.notes)
        again = set(repaired) if len(tries) > 1 else ()
        return [
            Ballot(
                model=juror.name, said=item, replies=texts, usage=usage, cost=cost, cached=cached, repaired=position in again, notes=notes
            )
            for position, item in enumerate(said)
        ]

    async def _tried(
        self,
        wires: list[RememberedModel],
        questions: Sequence[Question],
        rendered: Rendered,
        juror: GatedModel,
        asked: dict[str, Json],
        tape: Tape,
    ) -> _Try:
        request = self._request(rendered, juror, asked["sample"])
        key = ""
        if self._cache is not None:
            address: Json = getattr(juror.inner, "address", None)
            key = key_of(request, provider=juror.provider, model=juror.name, address=address, asked=asked)
        wire = RememberedModel(juror, self._cache, key, self.spent, self._under_way)
        wires.append(wire)
        try:
            # A tape that only lets through need not have everything written out for it.
            reply = await (wire if isinstance(tape, NoTape) else TapedModel(wire, tape)).complete(request)
        except TargetError as error:
            code, what = _CODES.get(error.code, _OTHERWISE)
            who = f'judge "{self.name}"' if juror.name == self.name else f'judge "{self.name}" (model {juror.name})'
            return _Try(spoiled(Fault(code, f"Agent check failed: {who} {what}: {error.message}"), len(questions)), wire)
        return _Try(self._read(reply, questions, rendered.ids), wire, reply)

    def _request(self, rendered: Rendered, juror: GatedModel, sample: int) -> ChatRequest:
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
        # What the model's own settings fill in is part of what is asked.
        prepared = getattr(juror.inner, "prepared", None)
        return request if prepared is None else prepared(request)

    def _read(self, reply: ChatReply, questions: Sequence[Question], ids: Sequence[str]) -> ReadReply:
        unusable: Fault | None = None
        who = f'Agent check failed: judge "{self.name}"'
        if reply.finish == "content_filter":
            unusable = Fault("judge_refused", f"{who} did not answer: a content filter held the reply back")
        elif reply.tool_calls:
            unusable = Fault("judge_tool_call", f"{who} asked for a tool to be called instead of answering")
        elif reply.finish == "length":
            unusable = Fault("judge_cut_off", f"{who} was cut off at the limit of {self.settings.max_tokens} tokens for a reply")
        return spoiled(unusable, len(questions)) if unusable is not None else read_reply(reply.text, questions, ids, self.name)


def _grouped(questions: Sequence[Question]) -> list[_Group]:
    """Questions by material and by the kind of answer, in the order of the first of each."""
    groups: dict[tuple[bytes, bool], _Group] = {}
    names: dict[int, bytes] = {}
    for position, question in enumerate(questions):
        material = question.material
        name = names.get(id(material))
        if name is None:
            name = names[id(material)] = _name_of(material) if len(questions) > 1 else b""
        group = groups.setdefault((name, question.threshold is None), _Group([], []))
        if group.questions and group.questions[0].material is not material:
            question = msgspec.structs.replace(question, material=group.questions[0].material)
        group.positions.append(position)
        group.questions.append(question)
    return list(groups.values())


def _name_of(material: Material) -> bytes:
    """What is the same for the same material. Not left to Python, to which `true` equals 1."""
    try:
        return canonical(material)
    except (RecursionError, TypeError, ValueError):
        return b"%d" % id(material)


async def _all(works: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """The results of all, side by side; where one fails the others are ended before that is told."""
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
