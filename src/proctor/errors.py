"""The exception tree of proctor.

    ProctorError
    ├── InputError          what the user wrote: a suite, an option, a path; carries every problem found
    │   ├── SpecError       one field of a check or matcher cannot be used; the reader adds the position
    │   └── MissingExtra    an extra is not installed; names the install command
    ├── EvidenceError       a trace that cannot be read
    ├── CheckFault          a check that could not be decided; becomes outcome `error` with its code
    ├── TargetError         the agent under test could not be reached or answered nonsense
    ├── JudgeError          the judging model could not be reached or answered nonsense
    └── StoreError          results could not be kept or found

A failing assertion is a verdict, never an exception. Inner code raises *what* is wrong; the reader that knows
the file adds *where*.
"""

from __future__ import annotations

from collections.abc import Sequence

from proctor.model.evidence import Evidence
from proctor.model.problem import Problem


class ProctorError(Exception):
    """The root of everything proctor raises on purpose."""


class InputError(ProctorError):
    """Something the user wrote cannot be used; `problems` holds every finding in file order."""

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems: tuple[Problem, ...] = tuple(problems)

    def __str__(self) -> str:
        """Return all problems in full, or the bare message when there are none."""
        if not self.problems:
            return super().__str__()
        return "\n".join(problem.render() for problem in self.problems)


class SpecError(InputError):
    """A field of a check, matcher or expression is unusable.

    `field` is the path inside the spec (`"pattern"`, `"arguments.date"`); `offset` is the 0-based position
    inside a text field, where the fault has one.
    """

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        offset: int | None = None,
        nearest: Sequence[str] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.offset = offset
        self.nearest = tuple(nearest)
        self.hint = hint

    def move_to(self, field: str | None) -> SpecError:
        """Return the same error at another field: who reads a text does not know which field it is written in."""
        return SpecError(self.message, field=field, offset=self.offset, nearest=self.nearest, hint=self.hint)


DISTRIBUTION = "proctor-evals"
"""What is installed: on the public index `proctor` is another project."""


def install_command(extra: str | None = None) -> str:
    """Return the command that installs proctor, with an extra if one is named."""
    return f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"pip install {DISTRIBUTION}"


class MissingExtra(InputError):
    """An extra of proctor is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the extra '{extra}': {install_command(extra)}")
        self.extra = extra


class EvidenceError(ProctorError):
    """A recorded run that cannot be read.

    `code` is the stable word a result carries; `file` and `line` are added by whoever opened the file.
    """

    def __init__(self, message: str, *, code: str = "unreadable_evidence") -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class CheckFault(ProctorError):
    """A check could not be decided on this evidence: a pattern ran out of time, an expression has no value.

    The engine turns it into a verdict `error` with `code`; other assertions are not affected.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class TargetError(ProctorError):
    """The agent under test could not be reached, or what it answered cannot be used.

    `code` is the stable word a result carries. `safe` says that asking again may help and cannot harm; `retry_after_s` is how long
    the other side asked to be left alone.
    """

    evidence: Evidence | None = None
    """What was observed before it went wrong, where anything was."""

    def __init__(self, message: str, *, code: str = "target_error", safe: bool = False, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.safe = safe
        self.retry_after_s = retry_after_s


class JudgeError(ProctorError):
    """The judging model could not be reached, or what it answered cannot be used."""


class StoreError(ProctorError):
    """Results could not be written or found."""
