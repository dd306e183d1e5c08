"""Answers that come compressed: whole however they are cut into pieces, or refused."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Sequence

import pytest

from proctor.codecs.http import BadPacking, unpack_answer

TEXT = b'{"answer": "booked", "calls": []}' * 3


def _unpack(pieces: Sequence[bytes], header: str) -> bytes:
    async def send() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return asyncio.run(unpack_answer(send(), header, max_bytes=10_000))


def _deflate_bare(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKED = {
    "bare deflate": ("deflate", _deflate_bare(TEXT)),
    "deflate in its wrapping": ("deflate", zlib.compress(TEXT)),
    "gzip of two members": ("gzip", gzip.compress(TEXT[:40]) + gzip.compress(TEXT[40:])),
}


@pytest.mark.parametrize("name", PACKED)
def test_an_answer_is_whole_wherever_it_is_cut(name: str) -> None:
    header, packed = PACKED[name]
    assert _unpack([packed[at : at + 1] for at in range(len(packed))], header) == TEXT
    for cut in range(len(packed) + 1):
        assert _unpack([packed[:cut], b"", packed[cut:]], header) == TEXT, cut


@pytest.mark.parametrize("name", PACKED)
def test_an_answer_that_breaks_off_is_refused_wherever_it_does(name: str) -> None:
    header, packed = PACKED[name]
    whole = {0, len(gzip.compress(TEXT[:40]))} if header == "gzip" else {0}
    for end in range(len(packed)):
        if end not in whole:
            with pytest.raises(BadPacking, match="breaks off"):
                _unpack([packed[:end]], header)


@pytest.mark.parametrize("trailing", [b"x", b"\x1fx", b"\0\0", b"\x1f\x8c"])
def test_trailing_bytes_are_refused_at_every_cut(trailing: bytes) -> None:
    packed = gzip.compress(TEXT) + trailing
    for cut in range(len(packed) - len(trailing), len(packed)):
        with pytest.raises(BadPacking, match="follows its end"):
            _unpack([packed[:cut], packed[cut:]], "gzip")


def test_a_broken_stream_in_its_wrapping_is_not_read_as_a_bare_one() -> None:
    packed = zlib.compress(TEXT)
    with pytest.raises(BadPacking, match="incorrect data check"):
        _unpack([packed[:-1] + bytes([packed[-1] ^ 1])], "deflate")
