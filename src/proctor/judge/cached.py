"""Caches the replies of judges, so that the same question is paid for once.

The key is the SHA-256 of everything the judge would see and of the request options. A file that cannot be read, or whose digest does not
match its key and its reply, counts as missing and is written again; a reply that cannot be written is requested again. Only the text, the
tokens and the model's name are stored; the request and transport data are not, so no secret is. A reply larger than `LARGEST_REPLY` is not
stored in files: no judgement is that long, and the model must not decide how full the disk gets.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec

from proctor.llm.ports import ChatReply, ChatRequest
from proctor.model.evidence import Json
from proctor.model.typed import make_json_decoder

LARGEST_REPLY = 65_536
"""The maximum size of a reply's text in bytes."""
FORMAT = 2
_LARGEST_FILE = 8 * LARGEST_REPLY
"""The maximum size of a file in bytes: JSON takes at most six bytes per character."""
_NUMBERS = itertools.count()


class _StoredReply(msgspec.Struct, frozen=True, kw_only=True):
    proctor_judge_reply: int = FORMAT
    digest: str
    """Digest of the key and the reply, so that a damaged file or a copy under another name is ignored."""
    reply: ChatReply


class FolderCache:
    """Stores replies in files, one per reply, in a thread of its own, so that no question waits for the disk.

    Several processes may share a folder. Replies that are not written yet are found too; those lost in a crash are requested again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._decoder = make_json_decoder(_StoredReply)
        self._encoder = msgspec.json.Encoder()
        self._waiting: dict[str, ChatReply] = {}
        self._thread: ThreadPoolExecutor | None = None

    def get(self, key: str) -> ChatReply | None:
        """Return the cached reply, or None if it is missing or unreadable."""
        if (waiting := self._waiting.get(key)) is not None:
            return waiting
        try:
            with open(self._make_path(key), "rb") as file:
                # A longer file is cut here and then is not valid JSON.
                stored = self._decoder.decode(file.read(_LARGEST_FILE))
        except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        return stored.reply if (stored.proctor_judge_reply, stored.digest) == (FORMAT, self._digest(key, stored.reply)) else None

    def put(self, key: str, reply: ChatReply) -> None:
        """Store a reply."""
        if is_too_large(reply):
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "judge-memory")
        self._waiting[key] = stored = strip_reply(reply)
        self._thread.submit(self._write, key, stored)

    def close(self) -> None:
        """Wait until all replies are written."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def _write(self, key: str, reply: ChatReply) -> None:
        place = self._make_path(key)
        # A unique name, because two processes may store the same reply at once; each moves a complete file into place.
        partial = f"{place}.{os.getpid()}-{next(_NUMBERS)}"
        try:
            # Not flushed to disk: after a machine crash the reply is requested again.
            data = self._encoder.encode(_StoredReply(digest=self._digest(key, reply), reply=reply))
            os.makedirs(os.path.dirname(place), exist_ok=True)
            # `x`: the name is new, so an existing file or a planted link is never written to.
            with open(partial, "xb") as file:
                file.write(data)
            os.replace(partial, place)
        except (OSError, UnicodeError):
            with suppress(OSError):
                os.unlink(partial)
        # Unless a newer reply waits under the same key. No lock: a newer reply that arrives between this test and the next line is removed
        # here but still written; until then the same question calls the model again.
        if self._waiting.get(key) is reply:
            del self._waiting[key]

    def _digest(self, key: str, reply: ChatReply) -> str:
        return hashlib.sha256(key.encode() + self._encoder.encode(reply)).hexdigest()

    def _make_path(self, key: str) -> str:
        # The first two digits are a folder, so that each of 256 folders is quick to search.
        return f"{self.path}{os.sep}{key[:2]}{os.sep}{key[2:]}.json"


def is_too_large(reply: ChatReply) -> bool:
    """Return whether a reply is too large to store."""
    texts = (reply.text, reply.model, *reply.notes)
    # Characters first, which never outnumber bytes: a huge reply need not be encoded to be measured.
    return sum(map(len, texts)) > LARGEST_REPLY or sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) > LARGEST_REPLY


def strip_reply(reply: ChatReply) -> ChatReply:
    """Return the parts of a reply that are cached."""
    return ChatReply(text=reply.text, finish=reply.finish, usage=reply.usage, model=reply.model, notes=reply.notes)


def make_key(request: ChatRequest, *, provider: str, model: str, address: str | None, options: dict[str, Json]) -> str:
    """Return the key of a request; `options` are the settings that the request does not contain."""
    # The address too: a model of the same name at another address may be another model.
    return hashlib.sha256(encode_canonical([provider, model, address, request, options])).hexdigest()


_ENCODER = msgspec.json.Encoder(order="sorted")


def encode_canonical(value: object) -> bytes:
    """Return canonical bytes for a value."""
    try:
        return _ENCODER.encode(value)
    except (UnicodeEncodeError, OverflowError, msgspec.MsgspecError):  # a lone surrogate, or an integer beyond 64 bits
        return json.dumps(msgspec.to_builtins(value, str_keys=True), sort_keys=True, separators=(",", ":")).encode()
