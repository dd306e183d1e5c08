"""Loads the prompts of a judge: versioned files next to this module.

An author may replace the instruction (how to judge). The reply format, the boundaries of the data and the reminder after it are always
ours: the safety of a judgement does not depend on a custom text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pkgutil import get_data

import msgspec

from proctor.errors import SpecError
from proctor.judge.bounds import fit_value, neutralise_value
from proctor.llm import fence
from proctor.model.evidence import Json

LONGEST_EXAMPLE = 4_000
VERSION = "2"
"""The folder of the current prompt. A changed text gets a new folder, so that old verdicts still name the text that was used."""


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """All texts sent to a judge except the checks and the material. `request` fills in `{{name}}` in our own texts."""

    version: str
    instruction: str
    """How to judge; the only part that an author may replace."""
    boundary: str
    """Where the data begins and ends, and what that means."""
    passes: str
    """The shape of a yes-or-no reply."""
    scores: str
    """The shape of a reply that gives scores."""
    choices: str
    """The shape of a reply that chooses among named options."""
    opening: str
    """Precedes the checks."""
    lead_in: str
    """Precedes the data; holds `{{marker}}`."""
    reminder: str
    """Follows the data; holds `{{cuts}}` and `{{ids}}`."""
    again: str
    """Added if an earlier reply could not be used."""
    examples: str
    """Precedes the human decisions, if there are any; holds `{{marker}}`."""
    images: str
    """Added if the request has images."""
    decisions: str = ""
    """Human decisions, inside their own fence."""

    @property
    def name(self) -> str:
        """The version and a digest of all texts, so that a changed text is a different prompt."""
        texts = [getattr(self, field) for field in self.__struct_fields__]
        return f"{self.version}/{sha256(msgspec.json.encode(texts)).hexdigest()[:12]}"


def load_prompt(override: str | None = None, examples: Sequence[dict[str, Json]] = ()) -> Prompt:
    """Return our prompt, with `override` as its instruction if given; its version is then `custom-` and a digest of that text.

    `examples` are human decisions: `criterion`, `answer`, `met`, and optional fields. The version includes their digest.
    """
    ours = _load_version(VERSION)
    if override is not None:
        # A lone surrogate cannot be sent.
        text = override.encode("utf-8", "ignore").decode().strip()
        if not text:
            raise SpecError("expected the text of an instruction, found an empty text", field="prompt")
        ours = msgspec.structs.replace(ours, version=f"custom-{sha256(text.encode()).hexdigest()[:8]}", instruction=text)
    if not examples:
        return ours
    # Material judged elsewhere is untrusted here as well.
    line = fence.encode_line([fit_value(neutralise_value(example)[0], LONGEST_EXAMPLE)[0] for example in examples])
    marker = fence.choose_marker(ours.examples, line)
    decisions = f"{ours.examples.replace('{{marker}}', marker)}\n{fence.fence_line(line, marker)}"
    version = f"{ours.version}+examples-{sha256(line.encode()).hexdigest()[:8]}"
    return msgspec.structs.replace(ours, version=version, decisions=decisions)


@cache
def _load_version(version: str) -> Prompt:
    texts: dict[str, str] = {}
    for name in Prompt.__struct_fields__:
        if name not in ("version", "decisions"):
            content = get_data("proctor.judge", f"prompts/{version}/{name.replace('_', '-')}.md")
            assert content is not None, "part of the package"
            texts[name] = content.decode().strip()
    return Prompt(version=version, **texts)
