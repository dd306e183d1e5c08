"""A program as the agent: started for every message, it reads the message and answers on its standard output.

The message goes to standard input, or replaces `{input}` in the arguments. `{messages}` is the conversation so far as JSON, and
`{session_id}` the id that all turns of an attempt share, also in `PROCTOR_SESSION_ID`; `PROCTOR_TURN` is the number of the turn (from 0). A
simulated system `clinic` has `CLINIC_URL` and `CLINIC_TOKEN`. `stdin` replaces the standard input, with the same placeholders. No shell is
started. The output is text or one JSON value: plain evidence, messages of a provider, a trace, or any other object, read like the answer
of an HTTP agent. An exit code other than 0 is the error of that case, with the end of standard error.

A program cannot be recorded on a tape: a replay starts it again. One that a suite describes gets a few harmless variables and those in
`env`; one that the workspace or the user describes gets the whole environment, since an agent needs its keys.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from proctor.cassettes.ports import Tape
from proctor.errors import EvidenceError, SpecError
from proctor.evidence.plain.record import read_plain
from proctor.evidence.unknowns.account import Unknowns
from proctor.model.attempt import Attempt
from proctor.model.case import list_variables
from proctor.model.evidence import Evidence
from proctor.model.json_values import MISSING, decode_embedded, write_as_text
from proctor.model.show import shorten, show
from proctor.processes.programs import Program, finish_despite_cancel
from proctor.targets.answers.account import AGENT_FAILED, add_account, is_blank, is_empty, mark_empty_answer
from proctor.targets.answers.json_answers import read_json_answer
from proctor.targets.shared.conversation import Message, converse
from proctor.targets.shared.faults import TargetFault
from proctor.targets.shared.masking import Secrets, names_a_secret, show_settings

# --- runs one program to its end: writes its standard input, reads bounded output, and leaves no process running

_GRACE_S = 2.0
"""Seconds for a program to end after SIGTERM, and for its pipes to close afterwards."""
_POLL_S = 0.01
"""Seconds between checks for the exit code."""
_CHUNK = 1 << 16


class TooLarge(Exception):
    """A program printed more than the limit."""


class Finished(msgspec.Struct, frozen=True):
    """A program that has ended."""

    code: int
    """The exit code; negative: the signal that ended it."""
    output: bytes
    last_words: str
    """The end of its standard error."""


async def run_child(command: Sequence[str], stdin: bytes, *, env: Mapping[str, str], cwd: Path | None, limit_bytes: int) -> Finished:
    """Run a program with `given` on its standard input until it ends. Raises `OSError` if it cannot be started, and `TooLarge`.

    A caller that is cancelled waits until the program has been ended.
    """
    program = await Program.start(command, env=env, cwd=cwd)
    try:
        return await _finish(program, stdin, limit_bytes)
    finally:
        await finish_despite_cancel(_end(program))


async def _finish(program: Program, given: bytes, limit_bytes: int) -> Finished:
    process, output = program.process, bytearray()
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None and stdout is not None

    async def read() -> None:
        while chunk := await stdout.read(_CHUNK):
            output.extend(chunk)
            if len(output) > limit_bytes:
                raise TooLarge

    async def write() -> None:
        # A program may end, or close its input, without reading it.
        with suppress(ConnectionError):
            stdin.write(given)
            await stdin.drain()
        with suppress(ConnectionError):
            stdin.close()
            await stdin.wait_closed()

    # Read and written concurrently: a program that prints before it has read everything would otherwise deadlock with us.
    reading, errors, writing = (asyncio.create_task(work) for work in (read(), program.read_errors(), write()))
    try:
        while not await program.wait_for_exit(_POLL_S):
            if reading.done():
                reading.result()  # raises if the output is too large
        # A child of the program may hold the pipes open indefinitely.
        await asyncio.wait((reading, errors), timeout=_GRACE_S)
        # `asyncio.wait` does not raise: output over the limit at the end is detected only here.
        if reading.done():
            reading.result()
    finally:
        for task in (reading, errors, writing):
            task.cancel()
        await asyncio.gather(reading, errors, writing, return_exceptions=True)
    assert process.returncode is not None
    return Finished(process.returncode, bytes(output), program.quote_errors())


async def _end(program: Program) -> None:
    if program.process.returncode is None:
        program.send_signal("SIGTERM")
        await program.wait_for_exit(_GRACE_S)
        program.send_signal("SIGKILL")
        program.kill_strays()
    # Also if the program has ended by itself: its children in the group may still run.
    await program.kill()


READER = "command"
MAX_OUTPUT_BYTES = 50 * 1024 * 1024
"""Maximum bytes of a program's output, the same as for an HTTP agent."""
INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "SYSTEMROOT", "TEMP", "TERM", "TMP", "TMPDIR", "USER")
"""The environment variables of a program that a suite describes."""
_PLACEHOLDER = re.compile(r"\{(input|messages|session_id)\}")
_MESSAGE = ("{input}", "{messages}")
_JSON_BEGINS = re.compile(r'\s*(?:\{\s*"|\[\s*\{)')


class CommandSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A program as the agent."""

    type: Literal["command"] = "command"
    command: tuple[str, ...]
    """The program and its arguments, as a list or as one text; without `{input}` or `{messages}` the message goes to standard input."""
    stdin: str | None = None
    """What goes to standard input: `{messages}` for the whole conversation as JSON, the message by default."""
    env: dict[str, str] = {}
    """Variables to add; a secret as `${NAME}`."""
    cwd: str | None = None
    """The folder to start it in, from that of the workspace file, which is the default."""
    timeout_s: float = 120.0
    """Maximum seconds for one answer."""

    def __repr__(self) -> str:
        return show_settings(self)


class CommandTarget:
    """Starts a program for every message."""

    takes_speakers = True
    has_wire = False

    def __init__(
        self,
        name: str,
        settings: CommandSettings,
        *,
        base: Path | None = None,
        secrets: frozenset[str] = frozenset(),
        whole_environment: bool = False,
    ) -> None:
        """Raises `SpecError` for settings that cannot be used."""
        self.name = name
        self._words = split_command(settings.command)
        named = any(name in word for word in self._words for name in _MESSAGE)
        self._sends_history = any("{messages}" in text for text in (*self._words, settings.stdin or ""))
        self._stdin = settings.stdin if settings.stdin is not None else "" if named else "{input}"
        self._cwd = (base or Path.cwd()) / settings.cwd if settings.cwd is not None else base
        self._timeout_s = settings.timeout_s
        if not 0 < settings.timeout_s < float("inf"):
            raise SpecError(f"timeout_s: expected a number above 0, found {settings.timeout_s:g}", field="timeout_s")
        inherited = {name: value for name, value in os.environ.items() if whole_environment or name in INHERITED}
        self._env = {**inherited, **settings.env}
        self._secrets = Secrets(secrets | {value for name, value in settings.env.items() if names_a_secret(name)})

    async def open(self) -> None:
        """Do nothing: every message starts its own program."""

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Start the program with every message of the case."""
        return await converse(attempt, self._say, target=self.name)

    async def close(self) -> None:
        """Do nothing: no program outlives its message."""

    async def _say(self, message: Message) -> Evidence:
        started = time.perf_counter()
        done = await self._run_program(message)
        passed = round((time.perf_counter() - started) * 1000, 3)
        if done.code != 0:
            ended = f"ended with code {done.code}" if done.code > 0 else f"was ended by signal {-done.code}"
            errors = self._secrets.hide(done.last_words)
            quoted = f": {shorten(errors, 1_000)}" if errors else " and wrote nothing to standard error"
            raise TargetFault("agent_failed", f"{self.describe()} {ended}{quoted}")
        try:
            text = self._secrets.hide(done.output.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise TargetFault("bad_answer", f"what {self.describe()} printed is not UTF-8 text (byte {error.start})") from None
        if is_empty(text):
            errors = self._secrets.hide(done.last_words)
            quoted = f" on standard output; on standard error: {shorten(errors, 400)}" if errors else ""
            raise TargetFault("empty_answer", f"{self.describe()} printed nothing{quoted}")
        evidence = self._read(text)
        if is_blank(evidence):
            raise TargetFault("empty_answer", f"{self.describe()} printed an answer with nothing in it", evidence=evidence)
        evidence = mark_empty_answer(add_account(evidence, Unknowns(), READER))
        return evidence if evidence.duration_ms is not None else msgspec.structs.replace(evidence, duration_ms=passed)

    async def _run_program(self, message: Message) -> Finished:
        text, case = write_as_text(message.content), message.attempt.case
        # Half a surrogate pair is left unchanged: `msgspec` rejects it.
        history = json.dumps(message.list_messages(), ensure_ascii=False) if self._sends_history else ""
        filled = {"input": text, "messages": history, "session_id": message.session_id}
        arguments = [_fill(word, filled) for word in self._words]
        if any("\0" in word for word in arguments):
            raise TargetFault("bad_request", "the message holds a zero byte, which no argument can contain: use standard input", safe=True)
        env = {
            **self._env,
            **{re.sub(r"\W", "_", name).upper(): str(case.context[name]) for name in list_variables(case.systems) if name in case.context},
            "PROCTOR_SESSION_ID": message.session_id,
            "PROCTOR_TURN": str(message.turn),
        }
        stdin = _fill(self._stdin, filled).encode("utf-8", "surrogatepass")
        try:
            async with asyncio.timeout(self._timeout_s):
                return await run_child(arguments, stdin, env=env, cwd=self._cwd, limit_bytes=MAX_OUTPUT_BYTES)
        # The program has ended: `run_child` ends it before it re-raises a cancellation.
        except TimeoutError:
            raise TargetFault("timeout", f"{self.describe()} did not answer within {self._timeout_s:g} s and was ended") from None
        except TooLarge:
            raise TargetFault("too_large", f"{self.describe()} printed more than {MAX_OUTPUT_BYTES:,} bytes and was ended") from None
        # `ValueError`: Python rejects a zero byte in a variable or in the folder.
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            place = f" in {str(self._cwd)!r}" if self._cwd is not None else ""
            raise TargetFault("unreachable", f"{self.describe()} cannot be started{place}: {why}") from None

    def _read(self, text: str) -> Evidence:
        document: Any = decode_embedded(text) if text.lstrip()[:1] in ("{", "[") else MISSING
        if document is MISSING:
            # Otherwise an incomplete document would be judged as a text answer.
            if _JSON_BEGINS.match(text):
                problem = "begins like JSON but is not JSON: it was cut off, or mixed with other output"
                raise TargetFault("bad_answer", f"what {self.describe()} printed {problem}: {show(text)}")
            return read_plain({"text": text.strip()})
        try:
            evidence = read_json_answer(document)
        except EvidenceError as error:
            raise TargetFault("bad_answer", f"what {self.describe()} printed is not evidence: {error.message}") from None
        if evidence is None:
            raise TargetFault("bad_answer", f"what {self.describe()} printed is not evidence: it contains several runs")
        if evidence.error is not None and evidence.metadata.get("code") == AGENT_FAILED:
            raise TargetFault(AGENT_FAILED, f"{self.describe()} answered an error: {shorten(evidence.error)}", evidence=evidence)
        return evidence

    def describe(self) -> str:
        """Return a short form of the command, without secrets."""
        return self._secrets.hide(shorten(shlex.join(self._words), 120))


def split_command(arguments: Iterable[str]) -> tuple[str, ...]:
    """Return the words of a command; a single text is split like in a shell. Raises `SpecError`."""
    words = tuple(arguments)
    if len(words) == 1:
        try:
            words = tuple(shlex.split(words[0]))
        except ValueError as error:
            raise SpecError(f"command: {show(words[0])} cannot be split into words: {error}", field="command") from None
    if not words or not words[0]:
        raise SpecError("command: no program is named", field="command")
    return words


def _fill(text: str, values: Mapping[str, str]) -> str:
    # In one pass: a message that contains `{messages}` or `{session_id}` is passed on unchanged.
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)
