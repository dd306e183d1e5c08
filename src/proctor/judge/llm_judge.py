"""A judge made of chat models: calls them, reads the replies, requests one repair of an unusable reply, and combines the answers into
opinions.

Questions about one material share a request, yes-or-no questions separately from scores; a case of MCPLab is one request. Every model of a
jury is called `samples` times. An undecided question becomes an opinion `error` with its own code, and affects no other question. Only
cancellation and a tape that cannot be written end the judging.
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
from proctor.judge.cached import FolderCache, encode_canonical, make_key
from proctor.judge.gated_model import GatedModel, JudgeSpending, RememberedModel, RequestGate
from proctor.judge.prompt import load_prompt
from proctor.judge.reply import Fault, Item, ReadReply, clean_text, make_spoiled, name_judge, read_reply
from proctor.judge.request import RenderedRequest, render_request
from proctor.judge.settings import JudgeSettings
from proctor.judge.votes import Ballot, Prices, combine_ballots, compute_cost, sum_usage, write_usage
from proctor.llm.ports import ChatModel, ChatReply, ChatRequest
from proctor.llm.taped import TapedModel
from proctor.model.evidence import Json
from proctor.model.judgement import Material, Opinion, Question

_T = TypeVar("_T")

_NEED_WHOLE_CONTEXT = ("faithful_to_context", "context_relevance")
"""Rubrics about the context that cannot be decided on a part of it."""
_NEGATION = re.compile(
    r"\b(?:not|no|never|nothing|none|without|neither|nor|avoids?|refrains?|lacks?|omits?|excludes?|absent|absence|only|solely"
    r"|free (?:of|from)|kein\w*|nicht|nie|ohne|nur|ne|pas|jamais|aucun\w*|sans|rien"
    r"|nunca|ning[uú]n\w*|nada|sin|sem|não|non|mai|senza|nessun\w*|niet|geen|zonder)\b|n't\b",
    re.IGNORECASE,
)
"""Words of a criterion that claims an absence, in some languages."""
MAX_STORED = 4_000

_CODES = {
    "rate_limited": ("judge_rate_limited", "is rate limited"),
    "overloaded": ("judge_overloaded", "is overloaded or failed"),
    "timeout": ("judge_timeout", "did not answer in time"),
    "transport": ("judge_unreachable", "could not be reached"),
    "unauthorized": ("judge_unauthorized", "refuses access"),
    "bad_request": ("judge_bad_request", "refused the request"),
    "too_large": ("judge_too_large", "answered too much"),
    "judge_budget": ("judge_budget", "was not called"),
    "cassette_miss": ("cassette_miss", "has no recorded reply"),
}
_ABOUT_IMAGES = re.compile(r"image|vision|visual|multimodal|modalit|attachment|content.{0,20}(?:string|type)", re.IGNORECASE)
"""How providers say that a model accepts only text."""
_OTHERWISE = ("judge_unreachable", "gave no answer that can be used")

_REPAIRS = {
    "judge_not_json": "The reply was not one single JSON object.",
    "judge_bad_results": "The reply had no list under the key `results`.",
    "judge_bad_item": "An entry of `results` did not have the demanded fields, or had another id. Escape quotation marks inside of texts.",
    "judge_missing_result": "There was no entry for these ids.",
    "judge_contradiction": "There were several entries for these ids, which say different things.",
    "judge_repeated_key": "An object of the reply had the same key twice. Escape quotation marks inside of texts.",
    "judge_no_reason": "An entry of `results` had an empty `reason`.",
    "judge_wrong_order": "An entry of `results` had its decision before its reason. Write `quotes`, then `reason`, then the decision.",
    "judge_unfounded": "A quote was not in the data. Copy quotes word for word, leave no words out, or give none.",
    "judge_bad_score": "A score was not a number from 0 to 1.",
    "judge_cut_off": "The reply was cut off because it was too long. Give reasons of a few words.",
    "judge_tool_call": "The reply asked for a tool to be called. There are no tools.",
}
"""The repair message for each fault code that has no message of its own."""


class _Group(msgspec.Struct, frozen=True):
    positions: list[int]
    questions: list[Question]


class _Try(msgspec.Struct, frozen=True):
    """One exchange with a model, and the parsed reply."""

    read: ReadReply
    remembered: RememberedModel
    number: int
    """The number of the request, counted over this judge."""
    reply: ChatReply | None = None


class LlmJudge:
    """Judges by calling chat models; implements `proctor.runner.ports.Judge`."""

    def __init__(
        self,
        models: Sequence[ChatModel],
        settings: JudgeSettings,
        *,
        cache: FolderCache | None = None,
        costs: Mapping[str, Prices] = {},
        spent: JudgeSpending | None = None,
        takes_first_entry: bool = False,
        plain_words: bool = False,
        calibrations: Mapping[str, dict[str, Json]] = {},
    ) -> None:
        """Judges with the same `spent` share one count and one request limit.

        With `takes_first_entry`, the first of several contradictory entries about a claim counts, as in MCPLab; with `plain_words`, faults
        are worded for authors of other suites. `calibrations`, by form
        (`yes_no`, `score`), are stamped on verdicts; one of the same form takes precedence.
        """
        if not models:
            raise SpecError("a judge needs a model", field="model")
        self.settings = settings
        self.name = settings.name or ", ".join(model.name for model in models)
        self.prompt = load_prompt(settings.prompt, settings.decisions)
        self.spent = JudgeSpending() if spent is None else spent
        self._cache = cache
        self._takes_first_entry, self._plain_words = takes_first_entry, plain_words
        self._who = name_judge(self.name, plain_words=plain_words)
        self._costs = costs
        # Requests are prepared while others are in flight, but no more than will soon be sent.
        self._group_gate = RequestGate(2 * settings.concurrency)
        self._request_numbers = itertools.count(1)
        self._under_way: dict[str, asyncio.Event] = {}
        """Requests in flight that equal requests wait for."""
        gate = RequestGate(settings.concurrency)
        self._models = [GatedModel(model, settings, gate=gate, spent=self.spent, prices=costs.get(model.name)) for model in models]
        self._identity: dict[str, Json] = {
            "judge": self.name,
            "models": [model.name for model in models],
            "provider": ", ".join(dict.fromkeys(model.provider for model in models)),
            "prompt_version": self.prompt.version,
        }
        self._calibrations = calibrations

    async def judge(self, questions: Sequence[Question], *, case: str, attempt: int, tape: Tape) -> list[Opinion]:
        """Return one opinion per question, in order."""
        groups = _group_questions(questions)
        opinions: dict[int, Opinion] = {}
        judged = await _gather_all([self._judge_group(group, attempt, tape) for group in groups])
        for group, opinions_of_group in zip(groups, judged, strict=True):
            opinions.update(zip(group.positions, opinions_of_group, strict=True))
        return [opinions[position] for position in range(len(questions))]

    async def ask_model(self, request: ChatRequest) -> ChatReply:
        """Send another request to the first model, within the same budget. Raises `TargetError`."""
        return await self._models[0].complete(request)

    async def close(self) -> None:
        """Close the connections of every model, even if one of them fails to close."""
        # Close all first: an error of one must neither leave the others open nor prevent the cache from being written.
        ends = await asyncio.gather(*(model.inner.close() for model in self._models), return_exceptions=True)
        if self._cache is not None:
            await asyncio.to_thread(self._cache.close)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    async def _judge_group(self, group: _Group, attempt: int, tape: Tape) -> list[Opinion]:
        """Return the opinions on one group, once there is a place for it."""
        options: dict[str, Json] = {"structured": self.settings.structured, "prompt": self.prompt.version}
        if not self.settings.share_over_repeats:
            # Repeats test whether the judge is consistent; a shared cached reply would make them agree.
            options["attempt"] = attempt
        await self._group_gate.enter()
        try:
            rendered = self._render_request(group.questions)
            works = [
                self._collect_ballots(group.questions, rendered, juror, {"member": member, "sample": sample, **options}, tape)
                for member, juror in enumerate(self._models)
                for sample in range(self.settings.samples)
            ]
            ballots = await _gather_all(works)
        finally:
            self._group_gate.leave()
        return [
            self._make_opinion(question, [each[position] for each in ballots], rendered, position, len(group.questions))
            for position, question in enumerate(group.questions)
        ]

    def _make_opinion(self, question: Question, ballots: list[Ballot], rendered: RenderedRequest, position: int, together: int) -> Opinion:
        opinion = combine_ballots(question, ballots, self.settings)
        details: dict[str, Json] = {**self._identity, "check_id": f"agent-check-{position + 1}", **opinion.details}
        form = "yes_no" if question.threshold is None else "score"
        # Calibrations measure criteria; rubrics and choices have a different wording.
        calibration = None if question.choices or question.worded_by else self._calibrations.get(form)
        if calibration is not None:
            details["calibration"] = calibration
        if together > 1:
            # Tokens and cost are those of the whole request; the number of questions that share it lets a reader add them up.
            details["shared_by"] = together
        if rendered.cuts:
            details["cuts"] = list(rendered.cuts)
            needs_all = question.choices or question.grounded or question.worded_by in _NEED_WHOLE_CONTEXT
            is_negative = question.forbidden or _NEGATION.search(question.criterion) is not None
            if needs_all or (opinion.outcome == "pass" and (is_negative or rendered.cuts_subject)):
                # The deciding passage may be in the hidden part: of the answer for any claim, of the context for a claim of absence.
                shown = "; ".join(rendered.cuts)
                reason = f"only a part of the material was shown ({shown}), so the rest is undecided; raise `max_chars` of the judge"
                return Opinion(outcome="error", code="judge_cut_material", reason=reason, details=details)
        return msgspec.structs.replace(opinion, details=details)

    def _render_request(self, questions: Sequence[Question], repair: str | None = None) -> RenderedRequest:
        settings = self.settings
        return render_request(questions, prompt=self.prompt, max_chars=settings.max_chars, order_seed=settings.order_seed, repair=repair)

    async def _collect_ballots(
        self, questions: list[Question], rendered: RenderedRequest, juror: GatedModel, options: dict[str, Json], tape: Tape
    ) -> list[Ballot]:
        """Return the answers of one model to all questions of a group, after one repair if needed."""
        calls: list[RememberedModel] = []
        try:
            first = await self._try_once(calls, questions, rendered, juror, options, tape)
            tries = [first]
            verdicts: list[Item | Fault] = list(first.read.items)
            unanswered_positions = first.read.list_unanswered()
            # Only once, and not after a content filter, which would trigger again. Without a reply there is nothing to repair: transport
            # faults were retried below.
            if unanswered_positions and first.reply is not None and first.read.fault_code != "judge_refused":
                repairs = dict.fromkeys(item.repair or _REPAIRS[item.code] for item in first.read.items if isinstance(item, Fault))
                unanswered = [questions[position] for position in unanswered_positions]
                if any(isinstance(item, Fault) and item.code == "judge_wrong_order" for item in first.read.items):
                    juror.drop_schema()
                second = await self._try_once(calls, unanswered, self._render_request(unanswered, " ".join(repairs)), juror, options, tape)
                tries.append(second)
                # Without a second reply, keep the faults of the first: they are more specific than a missing reply.
                if second.reply is not None:
                    for position, item in zip(unanswered_positions, second.read.items, strict=True):
                        previous = verdicts[position]
                        # A judge that invented a quote does not support its answer by omitting the quote.
                        is_dropped = isinstance(item, Item) and not item.is_supported
                        if not (is_dropped and isinstance(previous, Fault) and previous.code == "judge_unfounded"):
                            verdicts[position] = item
            # An unanswered question is sent again next time.
            if not tries[-1].read.list_unanswered():
                for each in tries:
                    if each.reply is not None and each.read.fault is None:
                        each.remembered.remember_reply(each.reply)
            return self._write_ballots(juror, verdicts, tries, repaired=unanswered_positions)
        finally:
            # In any case: otherwise equal requests would wait for this one for ever.
            for call in calls:
                call.finish()

    def _write_ballots(
        self, juror: GatedModel, verdicts: Sequence[Item | Fault], tries: Sequence[_Try], *, repaired: Sequence[int]
    ) -> list[Ballot]:
        replies = [each.reply for each in tries if each.reply is not None]
        usages = [reply.usage for reply in replies if reply.usage is not None]
        usage = sum_usage(usages) if usages else None
        cost = compute_cost(usage, self._costs.get(juror.name))
        texts = tuple(clean_text(reply.text, MAX_STORED) for reply in replies)
        cached = all(each.remembered.cached for each in tries)
        notes = tuple(note for reply in replies for note in reply.notes)
        repaired_positions = set(repaired) if len(tries) > 1 else ()
        requests: list[dict[str, Json]] = []
        for attempt in tries:
            # Only what was answered is paid for.
            if attempt.reply is None or attempt.remembered.cached:
                continue
            request: dict[str, Json] = {"id": f"{self.name}#{attempt.number}", "model": juror.name}
            if attempt.reply.usage is not None:
                request["usage"] = write_usage(attempt.reply.usage)
            if (paid := compute_cost(attempt.reply.usage, self._costs.get(juror.name))) is not None:
                request["cost"] = paid
            requests.append(request)
        return [
            Ballot(
                model=juror.name,
                verdict=item,
                replies=texts,
                usage=usage,
                cost=cost,
                requests=tuple(requests),
                cached=cached,
                repaired=position in repaired_positions,
                notes=notes,
            )
            for position, item in enumerate(verdicts)
        ]

    async def _try_once(
        self,
        calls: list[RememberedModel],
        questions: Sequence[Question],
        rendered: RenderedRequest,
        juror: GatedModel,
        options: dict[str, Json],
        tape: Tape,
    ) -> _Try:
        settings, number = self.settings, next(self._request_numbers)
        request = ChatRequest(
            messages=rendered.messages,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            # The same seed would give the same answer.
            seed=None if settings.seed is None else settings.seed + options["sample"],
            answer_schema=None if settings.structured == "text" else rendered.schema,
            answer_name=rendered.schema_name,
        )
        # The settings of the model are part of the request.
        fill_defaults = getattr(juror.inner, "fill_defaults", None)
        if fill_defaults is not None:
            request = fill_defaults(request)
        key = ""
        if self._cache is not None:
            address: Json = getattr(juror.inner, "address", None)
            key = make_key(request, provider=juror.provider, model=juror.name, address=address, options=options)
        call = RememberedModel(juror, self._cache, key, self.spent, self._under_way)
        calls.append(call)
        try:
            # A pass-through tape needs no serialised request.
            reply = await (call if isinstance(tape, NoTape) else TapedModel(call, tape)).complete(request)
        except TargetError as error:
            code, problem = _CODES.get(error.code, _OTHERWISE)
            if rendered.has_images and code == "judge_bad_request" and _ABOUT_IMAGES.search(error.message):
                code, problem = "judge_no_images", "takes no images"
            who = self._who if juror.name == self.name else f"{self._who} (model {juror.name})"
            return _Try(make_spoiled(Fault(code, f"{who} {problem}: {error.message}"), len(questions)), call, number)
        return _Try(self._read_answer(reply, questions, rendered), call, number, reply)

    def _read_answer(self, reply: ChatReply, questions: Sequence[Question], rendered: RenderedRequest) -> ReadReply:
        unusable: Fault | None = None
        who = self._who
        if reply.finish == "content_filter":
            unusable = Fault("judge_refused", f"{who} did not answer: a content filter held the reply back")
        elif reply.tool_calls:
            unusable = Fault("judge_tool_call", f"{who} requested a tool call instead of answering")
        elif reply.finish == "length":
            what = f"was cut off at the limit of {self.settings.max_tokens} tokens for a reply (`max_tokens` of the judge)"
            unusable = Fault("judge_cut_off", f"{who} {what}")
        if unusable is not None:
            return make_spoiled(unusable, len(questions))
        return read_reply(
            reply.text,
            questions,
            rendered.ids,
            self.name,
            material=rendered.line,
            takes_first_entry=self._takes_first_entry,
            plain_words=self._plain_words,
        )


def _group_questions(questions: Sequence[Question]) -> list[_Group]:
    groups: dict[tuple[bytes, bool, tuple[str, ...]], _Group] = {}
    names: dict[int, bytes] = {}
    for position, question in enumerate(questions):
        material = question.material
        name = names.get(id(material))
        if name is None:
            # Digested once per object: the questions of a case usually share their material, which may be large.
            name = names[id(material)] = _digest_material(material) if len(questions) > 1 else b""
        group = groups.setdefault((name, question.threshold is None, tuple(question.choices)), _Group([], []))
        if group.questions and group.questions[0].material is not material:
            # One object for the whole group, so that `render_request` recognises it by identity.
            question = msgspec.structs.replace(question, material=group.questions[0].material)
        group.positions.append(position)
        group.questions.append(question)
    return list(groups.values())


def _digest_material(material: Material) -> bytes:
    """Return bytes that identify the material. Python equality is not enough: it treats `true` as 1."""
    try:
        return encode_canonical(material)
    except (RecursionError, TypeError, ValueError):
        # A value that cannot be encoded is identified by its object, so only questions with the same object share a request.
        return b"%d" % id(material)


async def _gather_all(works: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Return all results, computed concurrently; if one fails, the others are cancelled before it is raised."""
    if len(works) == 1:  # avoids a task, which costs more than everything else here
        return [await works[0]]
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


# Rewords the faults of a judge for suites that are not MCPLab's.
# A judge words its faults as MCPLab does: `Agent check failed: judge "x" ... for batched agent checks`. Authors of other suites do not
# know agent checks, and read `the judge "x" ...`.
