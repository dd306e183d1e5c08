"""Replies of a simulated user's model are read exactly, or rejected."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.users import LONGEST_SAY, BrokenReply, read_reply
from tests.tables import rows


@rows("users/cases/replies.yaml")
def test_a_reply_is_read_strictly(row: dict[str, Any]) -> None:
    expect = row["expect"]
    if "broken" in expect:
        with pytest.raises(BrokenReply) as caught:
            read_reply(row["given"])
        assert expect["broken"] in str(caught.value)
        return
    move = read_reply(row["given"])
    assert (move.say, move.ends) == (expect.get("say", ""), expect.get("ends"))
    assert move.reason == expect.get("reason", move.reason)


def test_an_overlong_message_is_rejected() -> None:
    with pytest.raises(BrokenReply, match="the limit is 8,000"):
        read_reply('{"say": "' + "a" * (LONGEST_SAY + 1) + '", "done": false}')
