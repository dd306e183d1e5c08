"""The command line, run in this process: exit code and output."""

from __future__ import annotations

import io
import os
import sys
from typing import NamedTuple
from unittest import mock

from proctor.cli.main import run


class Done(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


class _Stream(io.TextIOWrapper):
    def __init__(self, tty: bool = False) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty

    def text(self) -> str:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode("utf-8")


def proctor(*arguments: object, stdin: bytes = b"", summary: object = "") -> Done:
    """`proctor ARGUMENTS...`; `summary` is the file of the job summary, never that of a job which runs these tests."""
    out, err = _Stream(), _Stream()
    given = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    github = {"GITHUB_STEP_SUMMARY": str(summary)}
    streams = mock.patch.multiple(sys, stdout=out, stderr=err, stdin=given)
    with streams, mock.patch.dict(os.environ, github):
        code = run([str(argument) for argument in arguments])
    return Done(int(code), out.text(), err.text())
