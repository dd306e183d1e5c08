"""Transcripts of calls: WebVTT, SubRip and JSON become turns.

- WebVTT: cues with `<v Name>` spans; NOTE, STYLE and REGION blocks, other tags and timestamps are dropped.
- SubRip: numbered cues; tags are dropped.
- In both, a line `Name: text` names its speaker where no span does, and cues of one speaker that follow each other are one turn:
  captions are split by time, not by sentence.
- JSON: a list of turns, or an object with one under `turns`, `transcript`, `messages`, `utterances` or `segments`; turns are not merged.
  A turn, or the object for all turns, may have the call's id, the called number and the caller's number.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from typing import Literal

from proctor.errors import EvidenceError
from proctor.model.evidence import Json, VoiceTurn
from proctor.model.json_values import NotJson, read_json
from proctor.model.show import kind_of

TranscriptKind = Literal["vtt", "srt", "json"]

_LISTS = ("turns", "transcript", "messages", "utterances", "segments")
_SPEAKERS = ("speaker", "role", "name", "participant", "channel")
_TEXTS = ("text", "content", "transcript", "utterance", "message")
_CALL_NAMES = {"call": ("call", "call_id", "call_sid"), "to": ("to", "to_number"), "sender": ("from", "from_number")}
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
# Repetitions over untrusted text are limited, so that no transcript can make these patterns backtrack for minutes.
_TIMING = re.compile(r"\s{0,10}[0-9][0-9:.,]{0,20}\s{0,10}-->\s{0,10}[0-9]")
_VOICE = re.compile(r"<v(?:\.[^\s>]{0,100})?[ \t]([^>\n]{1,200})>|</v>")
_TAG = re.compile(r"</?[A-Za-z0-9:.][^<>]{0,200}>|\{\\[^{}]{0,40}\}")
_NAMED = re.compile(r"(?:- ?)?(\w[\w .'()-]{0,39}):[ \t]+(?=\S)")


def read_transcript(text: str, kind: TranscriptKind | None = None) -> tuple[VoiceTurn, ...]:
    """Return the turns of a transcript; the kind is detected if it is not given. Raises `EvidenceError` for anything else."""
    text = text.removeprefix("\ufeff")
    if kind is None:
        kind = _recognise_kind(text)
    if kind == "json":
        try:
            document = read_json(text)
        except NotJson as error:
            raise EvidenceError(f"not a JSON transcript: {error}") from None
        entries: Json = document
        if isinstance(document, dict):
            entries = next((document[key] for key in _LISTS if isinstance(document.get(key), list)), None)
        if not isinstance(entries, list):
            raise EvidenceError(f"not a JSON transcript: expected a list of turns, or an object with one under {', '.join(_LISTS)}")
        defaults: dict[str, Json] = document if isinstance(document, dict) else {}
        return tuple(_read_json_turn(entry, index, defaults) for index, entry in enumerate(entries))
    if kind == "vtt" and not text.startswith("WEBVTT"):
        raise EvidenceError("not a WebVTT transcript: the first line is not WEBVTT")
    turns = list(_merge_cues(_read_cue(cue) for cue in _iterate_cues(text)))
    if not turns and kind == "srt" and text.strip():
        raise EvidenceError("not a SubRip transcript: it has no cue with a time line")
    return tuple(turns)


def read_call(*entries: Mapping[str, Json]) -> dict[str, str]:
    """Return the call of a turn, and its numbers, from the first entry that names them."""
    candidates = {field: [entry.get(name) for entry in entries for name in names] for field, names in _CALL_NAMES.items()}
    return {field: next((value for value in values if isinstance(value, str)), "") for field, values in candidates.items()}


def _recognise_kind(text: str) -> TranscriptKind:
    if text.startswith("WEBVTT"):
        return "vtt"
    return "json" if text.lstrip()[:1] in ("{", "[") else "srt"


def _iterate_cues(text: str) -> Iterator[list[str]]:
    """Yield the text lines of each cue: those between a time line and the next blank line."""
    lines: list[str] | None = None
    for line in _LINE_ENDS.split(text):
        if _TIMING.match(line):
            # SubRip files often lack the blank line; then the number before the time line is not text.
            if lines:
                yield lines[:-1] if lines[-1].strip().isdecimal() else lines
            lines = []
        elif not line.strip():
            if lines:
                yield lines
            lines = None
        elif lines is not None:
            lines.append(line)
    if lines:
        yield lines


def _read_cue(lines: list[str]) -> list[VoiceTurn]:
    """Return speaker and text of one cue."""
    turns: list[VoiceTurn] = []
    speaker, position = "", 0
    whole = "\n".join(lines)
    spans: list[tuple[str, str]] = []
    for match in _VOICE.finditer(whole):
        spans.append((speaker, whole[position : match.start()]))
        speaker, position = (match.group(1) or "").strip(), match.end()
    spans.append((speaker, whole[position:]))
    for speaker, part in spans:
        for line in part.split("\n"):
            # Tags are removed first: `&lt;b&gt;` is spoken text, and must not become a tag.
            text = " ".join(html.unescape(_TAG.sub("", line)).split())
            named = _NAMED.match(text) if not speaker else None
            if named is not None:
                turns.append(VoiceTurn(speaker=named.group(1).strip(), text=text[named.end() :]))
            elif text:
                # A further line of the cue continues with the speaker named above it.
                turns.append(VoiceTurn(speaker=speaker or (turns[-1].speaker if turns else ""), text=text))
    return turns


def _merge_cues(cues: Iterator[list[VoiceTurn]]) -> Iterator[VoiceTurn]:
    speaker, text = "", list[str]()
    for turn in (turn for cue in cues for turn in cue):
        if text and turn.speaker != speaker:
            yield VoiceTurn(speaker=speaker, text=" ".join(text))
            text = []
        speaker = turn.speaker
        text.append(turn.text)
    if text:
        yield VoiceTurn(speaker=speaker, text=" ".join(text))


def _read_json_turn(entry: Json, index: int, around: dict[str, Json]) -> VoiceTurn:
    if isinstance(entry, str):
        named = _NAMED.match(entry)
        speaker, text = (named.group(1).strip(), entry[named.end() :]) if named else ("", entry)
        return VoiceTurn(speaker=speaker, text=text, **read_call(around))
    if not isinstance(entry, dict):
        raise EvidenceError(f"turn {index} of the transcript: expected an object, found {kind_of(entry)}")
    if (text := next((entry[key] for key in _TEXTS if isinstance(entry.get(key), str)), None)) is None:
        raise EvidenceError(f"turn {index} of the transcript has no text under {', '.join(_TEXTS)}")
    speaker = next((entry[key] for key in _SPEAKERS if isinstance(entry.get(key), str)), "")
    return VoiceTurn(speaker=speaker, text=text, **read_call(entry, around))
