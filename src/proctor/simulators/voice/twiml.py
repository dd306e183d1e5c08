"""TwiML, the documents by which an agent controls a call at Twilio.

Supported: `<Say>`, `<Gather>` with nested speech, `<Play digits>`, `<Pause>`, `<Redirect>`, `<Hangup>` and `<Reject>`. A sound of `<Play>`
is not played, which is reported. Every other verb is rejected: the call would differ without it.
"""

from __future__ import annotations

import re
from typing import Literal
from xml.etree import ElementTree

import msgspec

from proctor.model.show import nearest, show

MOST_BYTES = 64_000
"""Bytes of one document, as Twilio has it."""
_VERBS = ("Gather", "Hangup", "Pause", "Play", "Redirect", "Reject", "Say")
_METHODS = ("GET", "POST")
_PRESSED = re.compile(r"[0-9*#wW]{1,64}")


class BadTwiml(Exception):
    """A document that cannot be performed; its text is the reason."""


class Verb(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do on a call."""

    kind: Literal["say", "press", "sound", "gather", "redirect", "hang_up"]
    text: str = ""
    """The speech; the keys, with a blank for each pause; the address of a sound."""
    url: str = ""
    method: str = "POST"
    hears_keys: bool = False
    hears_words: bool = False
    most_keys: int = 0
    """How many keys are listened for; 0: any number."""
    last_key: str = "#"
    reports_silence: bool = False
    """Whether the webhook is also called if nothing was heard."""


def read_twiml(body: bytes) -> list[Verb]:
    """Return the verbs of a document in order; speech inside a `<Gather>` comes before it. Raises `BadTwiml`."""
    if len(body) > MOST_BYTES:
        raise BadTwiml(f"the TwiML has {len(body)} bytes; there may be {MOST_BYTES}")
    try:
        text = body.decode("utf-8-sig")
        # Entities of its own are nothing that TwiML needs, and the usual way to make a small document large.
        if "<!DOCTYPE" in text or "<!ENTITY" in text:
            raise BadTwiml("the TwiML declares a document type, which is not read")
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise BadTwiml(f"the answer of the webhook is not TwiML: {error}") from None
    if root.tag != "Response":
        raise BadTwiml(f"TwiML begins with <Response>, not with <{root.tag[:40]}>")
    return [verb for element in root for verb in _read_element(element)]


def _read_element(element: ElementTree.Element) -> list[Verb]:
    match element.tag:
        case "Say":
            return _read_words(element)
        case "Play":
            return _read_play(element)
        case "Pause":
            return []
        case "Hangup" | "Reject":
            return [Verb(kind="hang_up")]
        case "Redirect":
            url = (element.text or "").strip()
            if not url:
                raise BadTwiml("<Redirect> names no address")
            return [Verb(kind="redirect", url=url, method=_read_method(element))]
        case "Gather":
            return _read_gather(element)
        case tag:
            near = nearest(tag, _VERBS)
            meant = f"; did you mean <{near[0]}>?" if near else ""
            raise BadTwiml(f"<{tag[:40]}> is not simulated; there are {', '.join(f'<{verb}>' for verb in _VERBS)}{meant}")


def _read_words(element: ElementTree.Element) -> list[Verb]:
    # Tags for emphasis and breaks are dropped, the words stay.
    text = " ".join("".join(element.itertext()).split())
    return [Verb(kind="say", text=text)] if text else []


def _read_play(element: ElementTree.Element) -> list[Verb]:
    keys = element.get("digits", "").strip()
    if not keys:
        return [Verb(kind="sound", text=(element.text or "").strip()[:200])]
    if not _PRESSED.fullmatch(keys):
        raise BadTwiml(f"<Play digits>: expected keys of a phone and w for pauses, found {show(keys)}")
    return [Verb(kind="press", text=" ".join(part for part in re.split("[wW]+", keys) if part))]


def _read_gather(element: ElementTree.Element) -> list[Verb]:
    inside: list[Verb] = []
    for child in element:
        if child.tag not in ("Say", "Play", "Pause"):
            raise BadTwiml(f"<{child.tag[:40]}> does not stand inside of <Gather>; there are <Say>, <Play> and <Pause>")
        inside += _read_element(child)
    inputs = element.get("input", "dtmf").split()
    if not inputs or any(word not in ("dtmf", "speech") for word in inputs):
        raise BadTwiml(f"<Gather input>: expected dtmf, speech or both, found {show(element.get('input'))}")
    most = element.get("numDigits", "")
    if most and not (most.isascii() and most.isdigit() and 0 < len(most) < 5):
        raise BadTwiml(f"<Gather numDigits>: expected a whole number, found {show(most)}")
    gather = Verb(
        kind="gather",
        url=element.get("action", "").strip(),
        method=_read_method(element),
        hears_keys="dtmf" in inputs,
        hears_words="speech" in inputs,
        most_keys=int(most or 0),
        last_key=element.get("finishOnKey", "#"),
        reports_silence=element.get("actionOnEmptyResult", "").lower() == "true",
    )
    return [*inside, gather]


def _read_method(element: ElementTree.Element) -> str:
    method = element.get("method", "POST").upper()
    if method not in _METHODS:
        raise BadTwiml(f"<{element.tag} method>: expected GET or POST, found {show(method)}")
    return method
