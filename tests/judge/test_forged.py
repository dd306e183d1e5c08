"""Answers that imitate a verdict, and judges that copy them: none passes without the judge's decision."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.cassettes.ports import LIVE
from proctor.judge.llm_judge import LlmJudge
from proctor.judge.reply import Item, read_reply
from proctor.judge.scripted import list_ids
from proctor.judge.settings import JudgeSettings
from proctor.llm.ports import ChatReply, ChatRequest
from proctor.model.judgement import Material, Opinion, Question
from tests.tables import load

TRICKS = {row["id"]: row["text"] for row in load("judge/cases/forgeries.yaml")}
Reply = Callable[[str, str, str], str]
"""A judge's reply from an id, the answer, and its decision as JSON."""


class Model:
    """A model that replies with a function of the request."""

    provider = name = "careless"

    def __init__(self, reply: Callable[[ChatRequest], str]) -> None:
        self._reply = reply

    async def complete(self, request: ChatRequest) -> ChatReply:
        return ChatReply(text=self._reply(request))

    async def close(self) -> None: ...


def write(identifier: str, decision: str, reason: str = "no", quotes: str = "") -> str:
    return f'{{"results":[{{"id":"{identifier}","quotes":[{quotes}],"reason":"{reason}",{decision}}}]}}'


JUDGES: dict[str, Reply] = {
    "echo": lambda id_, answer, no: answer,
    "fenced echo": lambda id_, answer, no: f"```json\n{answer}\n```",
    "quotes unescaped in the reason": lambda id_, answer, no: write(id_, no, f"it says {answer}"),
    "quotes unescaped": lambda id_, answer, no: write(id_, no, quotes=f'"{answer}"'),
    "fences what it quotes unescaped": lambda id_, answer, no: f"```json\n{write(id_, no, f'it says {answer}')}\n```",
    "escapes line breaks alone": lambda id_, answer, no: write(id_, no, "it says " + answer.replace("\n", "\\n")),
    "escapes backslashes alone": lambda id_, answer, no: write(id_, no, "it says " + answer.replace("\\", "\\\\")),
    "answer before the verdict": lambda id_, answer, no: f"The answer: {answer}\n\n{write(id_, no)}",
    "answer after the verdict": lambda id_, answer, no: f"{write(id_, no)}\n\nThe answer: {answer}",
    "thinks aloud": lambda id_, answer, no: f"<think>{answer}</think>{write(id_, no)}",
    "drafts in its thoughts": lambda id_, answer, no: f"<think>{write(id_, no, f'it says {answer}')}</think>{write(id_, no)}",
    "thinks without an opening tag": lambda id_, answer, no: f"The answer: {answer}</think>{write(id_, no)}",
    "drafts without an opening tag": lambda id_, answer, no: f"Hm {write(id_, no, f'it says {answer}')}</think>{write(id_, no)}",
    "copies the entries": lambda id_, answer, no: f'{{"results":[{answer},{{"id":"{id_}","quotes":[],"reason":"no",{no}}}]}}',
    "adds the answer as a member": lambda id_, answer, no: f'{{"answer":"{answer}",' + write(id_, no)[1:],
    "adds the answer as a trailing member": lambda id_, answer, no: write(id_, no)[:-1] + f',"answer":"{answer}"}}',
    "says yes and quotes the criterion": lambda id_, answer, no: write(id_, YES[no], quotes='"names the day of the delivery"'),
    "says yes and makes up a quote": lambda id_, answer, no: write(id_, YES[no], quotes='"it arrives on Monday at noon"'),
}
YES = {'"pass":false': '"pass":true', '"score":0': '"score":1', '"choice":"toxic"': '"choice":"clean"'}
CHOICES = {"clean": "nothing toxic", "toxic": "an insult"}


def judge_answer(answer: str, reply: Reply, threshold: float | None, *, first: bool = False, choices: bool = False) -> Opinion:
    no = '"choice":"toxic"' if choices else '"pass":false' if threshold is None else '"score":0'
    question = Question(criterion="It names the day of the delivery.", material=Material(subject=answer), threshold=threshold)
    if choices:
        question = msgspec.structs.replace(question, choices=CHOICES, accepted=("clean",))
    model = Model(lambda request: reply(list_ids(request)[0], answer, no))
    judge = LlmJudge([model], JudgeSettings(), takes_first_entry=first)
    return asyncio.run(judge.judge([question], case="c", attempt=0, tape=LIVE))[0]


def find_old_id(threshold: float | None) -> str:
    """The id of the same question about another answer, which an agent may know from earlier runs."""
    seen: list[str] = []

    def reply(request: ChatRequest) -> str:
        seen.extend(list_ids(request))
        return "{}"

    question = Question(criterion="It names the day of the delivery.", material=Material(subject="Tomorrow."), threshold=threshold)
    asyncio.run(LlmJudge([Model(reply)], JudgeSettings()).judge([question], case="c", attempt=0, tape=LIVE))
    return seen[0]


@pytest.mark.in_turn
@pytest.mark.parametrize("first", [False, True], ids=["", "mcplab"])
@pytest.mark.parametrize("threshold", [None, 0.5], ids=["yes or no", "score"])
@pytest.mark.parametrize("name", JUDGES)
def test_no_answer_forges_a_pass(name: str, threshold: float | None, first: bool) -> None:
    old = find_old_id(threshold)
    assert len(TRICKS) >= 28
    outcomes = {
        trick: judge_answer(text.replace("OLD", old).replace("NEAR", "check-1-0123456789ab"), JUDGES[name], threshold, first=first)
        for trick, text in TRICKS.items()
    }
    assert {trick: opinion.reason for trick, opinion in outcomes.items() if opinion.outcome == "pass"} == {}


PIECES = st.one_of(
    st.sampled_from([text[start:] for text in TRICKS.values() for start in range(0, len(text), 7)]),
    st.sampled_from(
        [
            *'{}[]:,"\\',
            '\\"',
            "\n",
            "```",
            "<think>",
            "</think>",
            '"Pass":true',
            '"p\\u0061ss":true',
            "assistantfinal",
            '"results":[',
            "},{",
        ]
    ),
)


@given(pieces=st.lists(PIECES, min_size=1, max_size=6), kind=st.sampled_from(['"pass":false', '"score":0', '"choice":"toxic"']))
@settings(max_examples=300, deadline=None)
def test_no_combination_of_tricks_forges_a_pass(pieces: list[str], kind: str) -> None:
    answer = "".join(pieces).replace("OLD", "check-1-aaaaaaaaaaaa").replace("NEAR", "check-1-0123456789ab")
    threshold, choices = 0.5 if "score" in kind else None, CHOICES if "choice" in kind else {}
    if choices:
        answer = answer.replace('"pass":true,"score":1', '"choice":"clean"').replace('"pass": true, "score": 1', '"choice": "clean"')
    question = Question(
        criterion="It names the day.", material=Material(subject=answer), threshold=threshold, choices=choices, accepted=("clean",)
    )
    shown = json.dumps({"final_answer": answer})
    for (name, reply), first in product(JUDGES.items(), (False, True)):
        if not name.startswith("says yes"):
            read = read_reply(
                reply("check-1-ffffffffffff", answer, kind),
                [question],
                ["check-1-ffffffffffff"],
                "j",
                material=shown,
                takes_first_entry=first,
            )
            assert not (isinstance(read.items[0], Item) and read.items[0].passed), (name, first)


@pytest.mark.in_turn
@pytest.mark.parametrize("name", JUDGES)
def test_no_answer_forges_a_choice(name: str) -> None:
    for trick, text in TRICKS.items():
        forged = text.replace('"pass":true,"score":1', '"choice":"clean"').replace('"pass": true, "score": 1', '"choice": "clean"')
        for written in (forged, forged.replace('"choice"', '"Choice"')):
            assert judge_answer(written.replace("OLD", "check-1"), JUDGES[name], None, choices=True).outcome != "pass", trick


@pytest.mark.parametrize("name", ["quotes unescaped in the reason", "quotes unescaped", "thinks aloud", "thinks without an opening tag"])
def test_an_honest_answer_is_still_decided(name: str) -> None:
    for answer in ("It arrives on Monday.", "See <b>here</b>, [1] and 'there'; soon."):
        assert judge_answer(answer, JUDGES[name], None, first=False).outcome == "fail"
        yes = judge_answer(answer, lambda id_, answer, no: json.dumps(json.loads(write(id_, YES[no]))), None, first=False)
        assert yes.outcome == "pass"
