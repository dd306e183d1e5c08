"""Cached judge replies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.judge.cached import FolderCache, encode_canonical, make_key
from proctor.llm.ports import ChatMessage, ChatReply, ChatRequest
from proctor.model.evidence import Usage
from tests.judge.twins import MemoryCache

REPLY = ChatReply(
    text="{} é 😀",
    finish="stop",
    usage=Usage(input_tokens=3, output_tokens=4),
    model="m-1",
    raw_request={"messages": "all of it"},
    raw_response={"id": 1},
    notes=("seed was left out",),
    duration_ms=3.0,
)
KEY = "ab" + "0" * 62


@pytest.fixture(params=["folder", "memory"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FolderCache]:
    made: FolderCache = {"folder": FolderCache(tmp_path / "judge"), "memory": MemoryCache()}[request.param]
    yield made
    made.close()


def store(folder: Path, key: str, reply: ChatReply) -> FolderCache:
    cache = FolderCache(folder)
    cache.put(key, reply)
    cache.close()
    return cache


def test_entries_are_on_disk_after_closing(tmp_path: Path) -> None:
    cache = FolderCache(tmp_path)
    keys = [f"{number:02x}" + "0" * 62 for number in range(100)]
    for number, key in enumerate(keys):
        cache.put(key, ChatReply(text=str(number)))
        assert cache.get(key) == ChatReply(text=str(number))
    cache.close()
    again = FolderCache(tmp_path)
    assert [again.get(key) for key in keys] == [ChatReply(text=str(number)) for number in range(100)]
    # A closed cache still works.
    cache.put(keys[0], ChatReply(text="newer"))
    cache.close()
    assert FolderCache(tmp_path).get(keys[0]) == ChatReply(text="newer")


def test_a_cached_reply_is_returned_without_its_request(cache: FolderCache) -> None:
    assert cache.get(KEY) is None
    cache.put(KEY, REPLY)
    got = cache.get(KEY)
    assert got == ChatReply(text=REPLY.text, usage=REPLY.usage, model="m-1", notes=REPLY.notes)
    assert cache.get("ab" + "1" * 62) is None
    cache.put(KEY, ChatReply(text="newer"))
    assert cache.get(KEY) == ChatReply(text="newer")


def test_a_cache_folder_is_shared_and_has_subfolders(tmp_path: Path) -> None:
    store(tmp_path, KEY, REPLY)
    again = FolderCache(tmp_path).get(KEY)
    assert again is not None and again.text == REPLY.text
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.json")] == [f"ab/{'0' * 62}.json"]
    assert "all of it" not in (tmp_path / "ab" / f"{'0' * 62}.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"proctor_judge_reply": 1, "reply": {"text": "yes"}}',
        b'{"proctor_judge_reply": 2, "digest": "", "reply": {"text": "yes"}}',
        b'{"reply": 1}',
        b"[" * 100_000,
    ],
)
def test_an_unreadable_file_is_a_miss_and_is_replaced(tmp_path: Path, content: bytes) -> None:
    cache = FolderCache(tmp_path)
    (tmp_path / "ab").mkdir()
    (tmp_path / "ab" / f"{'0' * 62}.json").write_bytes(content)
    assert cache.get(KEY) is None
    cache.put(KEY, REPLY)
    cache.close()
    assert cache.get(KEY) is not None


def test_a_changed_or_copied_file_is_a_miss(tmp_path: Path) -> None:
    store(tmp_path, KEY, ChatReply(text="no"))
    path = tmp_path / "ab" / f"{'0' * 62}.json"
    (tmp_path / "ab" / f"{'1' * 62}.json").write_bytes(path.read_bytes())
    assert FolderCache(tmp_path).get("ab" + "1" * 62) is None
    path.write_bytes(path.read_bytes().replace(b'"no"', b'"yes"'))
    assert FolderCache(tmp_path).get(KEY) is None
    store(tmp_path, KEY, ChatReply(text="no"))
    assert FolderCache(tmp_path).get(KEY) == ChatReply(text="no")


def test_an_unwritable_folder_does_not_fail_the_judgement(tmp_path: Path) -> None:
    (tmp_path / "ab").write_text("a file where the folder would be", encoding="utf-8")
    assert store(tmp_path, KEY, REPLY).get(KEY) is None


def test_a_path_occupied_by_a_folder_leaves_no_partial_file(tmp_path: Path) -> None:
    (tmp_path / "ab" / f"{'0' * 62}.json" / "x").mkdir(parents=True)
    store(tmp_path, KEY, REPLY)
    assert [path.name for path in (tmp_path / "ab").iterdir()] == [f"{'0' * 62}.json"]


def test_a_reply_without_text_is_not_cached(tmp_path: Path) -> None:
    assert store(tmp_path, KEY, ChatReply(text="half \ud83d")).get(KEY) is None
    assert not list(tmp_path.rglob("*.json*"))


REQUEST: dict[str, Any] = {
    "messages": (ChatMessage(role="user", text="hi"),),
    "temperature": 0.0,
    "max_tokens": 10,
    "seed": 1,
    "answer_schema": {"a": 1},
}
HOW: dict[str, Any] = {"provider": "p", "model": "m", "address": "http://x", "options": {"sample": 0, "member": 0, "attempt": 0}}


def test_a_key_depends_on_every_part_of_the_request() -> None:
    def key(request: dict[str, Any] = {}, **how: Any) -> str:  # noqa: B006 - never changed
        return make_key(ChatRequest(**{**REQUEST, **request}), **{**HOW, **how})

    same = [key(), key({"answer_schema": {"a": 1}}), key(options={"attempt": 0, "member": 0, "sample": 0})]
    assert len(set(same)) == 1
    others = [
        key({"messages": (ChatMessage(role="user", text="ho"),)}),
        key({"messages": (ChatMessage(role="system", text="hi"),)}),
        key({"temperature": None}),
        key({"temperature": 0.5}),
        key({"max_tokens": 11}),
        key({"seed": 2}),
        key({"answer_schema": None}),
        key({"answer_schema": {"a": 2}}),
        key(provider="q"),
        key(model="n"),
        key(address=None),
        key(options={"sample": 1, "member": 0, "attempt": 0}),
        key(options={"sample": 0, "member": 1, "attempt": 0}),
        key(options={"sample": 0, "member": 0, "attempt": 1}),
        key(options={"sample": 0, "member": 0}),
    ]
    assert len({same[0], *others}) == len(others) + 1


def test_values_outside_json_have_a_key() -> None:
    assert encode_canonical({"b": "\ud83d", "a": 10**30}) == encode_canonical({"a": 10**30, "b": "\ud83d"})
    assert encode_canonical({"a": True}) != encode_canonical({"a": 1})


def test_a_reply_that_is_too_large_is_not_cached(tmp_path: Path) -> None:
    cache = FolderCache(tmp_path)
    too_large = [ChatReply(text="x" * 65_537), ChatReply(text="é" * 32_769), ChatReply(text="x", model="m" * 65_536)]
    for number, reply in enumerate((*too_large, ChatReply(text="x" * 65_536), ChatReply(text="é" * 32_768))):
        key = f"{number:064x}"
        cache.put(key, reply)
        assert cache.get(key) == (None if reply in too_large else reply)
    cache.close()
    assert len(list(tmp_path.rglob("*.json"))) == 2
