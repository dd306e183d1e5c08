"""Stores calibrations, so that every verdict of a judge shows how well that judge agrees with people.

One small file in the results folder has one calibration per judge, identified by its models, its prompt and the form of its answers (yes
or no, or a score). A calibration on a few labels does not replace one on more. A file that cannot be read counts as missing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from proctor.errors import StoreError
from proctor.model.evidence import Json
from proctor.model.typed import make_json_decoder

FILE = "calibrations.json"
ENOUGH = 30
"""The number of labels with which a calibration replaces any older one, because it describes the current model."""
MOST = 100
"""The maximum number of calibrations in the file; the oldest are dropped."""
_HINT = "`proctor judge calibrate LABELS` measures how far it agrees with people"


Form = Literal["yes_no", "score"]
_FORMS: dict[Form, str] = {"yes_no": "yes or no", "score": "scores"}


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one calibration."""

    models: tuple[str, ...]
    """As `provider/name`."""
    prompt: str
    """The version and the digest of the prompt."""
    kappa: float | None
    low: float | None
    """The lower bound of kappa."""
    high: float | None
    labels: int
    """The number of labels that the judge decided."""
    threshold: float | None = None
    """The lowest passing score; None if the judge answered yes or no."""
    samples: int = 1
    date: str
    """The day, as `2026-01-31`."""

    @property
    def form(self) -> Form:
        """The form of the judge's answers."""
        return "yes_no" if self.threshold is None else "score"

    def describe(self) -> dict[str, Json]:
        """Return the stamp as stored in the details of a verdict."""
        return msgspec.to_builtins(self)


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    proctor_calibrations: int = 1
    calibrations: list[Stamp] = []


_DECODER = make_json_decoder(_Stored)


def read_stamps(home: Path) -> list[Stamp]:
    """Return the calibrations of a workspace, oldest first."""
    try:
        return _DECODER.decode((home / FILE).read_bytes()).calibrations
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return []


def write_stamp(home: Path, stamp: Stamp) -> bool:
    """Store a calibration in place of an older one of the same judge; return False for too few labels. Raises `StoreError`."""
    known = read_stamps(home)
    same = [each for each in known if (each.models, each.prompt, each.form) == (stamp.models, stamp.prompt, stamp.form)]
    if stamp.labels < ENOUGH and any(each.labels > stamp.labels for each in same):
        return False
    others = [each for each in known if each not in same]
    content = msgspec.json.format(msgspec.json.encode(_Stored(calibrations=[*others, stamp][-MOST:])), indent=1)
    partial = home / f".{FILE}.{os.getpid()}.part"
    try:
        home.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content + b"\n")
        # Atomic: a run that starts now reads the old file or the new one.
        os.replace(partial, home / FILE)
    except OSError as error:
        raise StoreError(f"the calibration {str(home / FILE)!r} cannot be stored: {error.strerror}") from error
    return True


def find_stamps(home: Path, models: Sequence[str], prompt: str, forms: Collection[Form] = ()) -> tuple[dict[Form, Stamp], str | None]:
    """Return the calibrations of a judge, and a warning if there is none or one of these forms has none."""
    known, names = read_stamps(home), ", ".join(models)
    same_models = [stamp for stamp in known if stamp.models == tuple(models)]
    exact = [stamp for stamp in same_models if stamp.prompt == prompt]
    if exact:
        stamps_by_form: dict[Form, Stamp] = {stamp.form: stamp for stamp in exact}
        missing = " and ".join(_FORMS[form] for form in sorted(set(forms) - stamps_by_form.keys(), reverse=True))
        other_prompt = f"the judge {names} is calibrated on {_FORMS[exact[-1].form]} alone, and claims ask for {missing}; {_HINT}"
        return stamps_by_form, other_prompt if missing else None
    if same_models:
        last = same_models[-1]
        return {}, f"the prompt of the judge {names} changed since its calibration on {last.date} ({last.prompt}, now {prompt}); {_HINT}"
    if known:
        last = known[-1]
        return {}, f"the judge {names} is not calibrated: the calibration of {last.date} is of {', '.join(last.models)}; {_HINT}"
    return {}, f"the judge {names} is not calibrated; {_HINT}"
