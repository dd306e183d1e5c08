"""Dispatches commands and maps errors to exit codes."""

from __future__ import annotations

import errno
import gc
import os
import sys
from typing import NamedTuple

from proctor.cli.commands import load_command
from proctor.cli.exit_codes import Exit, ParserDone, refuse_silent_pass
from proctor.errors import ProctorError
from proctor.model.show import escape_unseen, suggest


class Command(NamedTuple):
    """A command and its summary in `--help`."""

    name: str
    summary: str

    def run(self, arguments: list[str]) -> int:
        """Load the command's module and run it."""
        # Modules are not garbage, and neither are the suites and results that a command holds.
        gc.disable()
        # Only this command: loading all would dominate short ones.
        module = load_command(self.name)
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        gc.enable()
        if self.name in _FIRST:
            from proctor.cli.show.other_distributions import warn_of_others  # rarely needed

            warn_of_others()
        code: int = module.run(arguments)
        return code


_FIRST = ("demo", "init", "try")
"""Commands for beginners, which report a broken installation."""
COMMANDS = (
    Command("init", "find the agent in this folder, and write a suite, a target and a first case for it"),
    Command("try", "send one message to an agent and show its answer and tool calls; --save makes it a case"),
    Command("check", "evaluate recorded evidence against a suite; no agent is called"),
    Command("batch", "evaluate a large set of recorded evidence (Parquet, JSON lines) on all cores"),
    Command("run", "run an agent through a suite, record evidence, evaluate it and store the run"),
    Command("recheck", "evaluate the stored evidence of a run again, without calling the agent"),
    Command("mutate", "measure a suite: plant faults in recorded evidence, and show which of them no claim detects"),
    Command("generate", "propose cases from recorded runs, tools, workflows or OpenAPI, without a model"),
    Command("accept", "review proposed cases and move them into their suite; make a passing run golden"),
    Command("compare", "compare stored runs: regressed, improved, unchanged; a gate for CI"),
    Command("baseline", "choose the run that later runs are compared with"),
    Command("list", "list stored runs"),
    Command("show", "show one stored run"),
    Command("view", "show the runs of this folder as web pages on this machine"),
    Command("report", "write a stored run as HTML, JUnit, Markdown or JSON"),
    Command("validate", "find errors in suites and evidence files, without running anything"),
    Command("convert", "convert a suite of any dialect to the native format"),
    Command("describe", "list checks, matchers, functions and formats, with fields and examples"),
    Command("serve", "run the service: receive and evaluate traces, run suites; web pages, REST and MCP"),
    Command("mcp", "serve MCP on standard input and output, for a coding agent on this machine"),
    Command("doctor", "examine an MCP server: protocol, probes, authorization, tool definitions"),
    Command("judge", "measure how well a judge agrees with people: calibrate it on labelled answers"),
    Command("keys", "create, list and revoke the keys of the service"),
    Command("sandbox", "start, inspect and stop simulated systems: up, show, events, diff, down"),
    Command("db", "export, import, migrate or show the database of the service"),
    Command("completion", "print a script that completes commands and options in bash, zsh or fish"),
    Command("demo", "run the bundled examples; no network, no keys"),
)


def write_usage() -> str:
    """Return what `proctor --help` prints."""
    width = max(len(command.name) for command in COMMANDS)
    lines = [
        "usage: proctor COMMAND [options]",
        "",
        "Test AI agents: state what an agent must do, run it or read its recorded traces, and decide every claim with evidence.",
        "",
        "commands:",
        *(f"  {command.name:<{width}}  {command.summary}" for command in COMMANDS),
        "",
        "start here:",
        "  proctor demo",
        '  proctor try "Where is order 17?" --target app:answer',
        "  proctor init my-suite && proctor check my-suite/suite.yaml my-suite/evidence.jsonl",
        "",
        "`proctor COMMAND --help` explains a command; `proctor --version` prints the version.",
        "Exit codes: 0 all passed, 1 something failed, 2 interrupted or incomplete, 3 internal error, 4 usage or input error,",
        "5 nothing selected.",
    ]
    return "\n".join(lines)


def run(arguments: list[str]) -> int:
    """Run one command line; returns the exit code."""
    try:
        with refuse_silent_pass():
            code = _dispatch(arguments)
        # Here and not at exit, so that write errors get a message and an exit code.
        if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison] - it is, where the descriptor was closed
            sys.stdout.flush()
        return code
    except ProctorError as error:
        print(escape_unseen(str(error), keep="\n\u200c\u200d"), file=sys.stderr)
        return Exit.USAGE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`): not our failure.
        return Exit.FAILED
    except ParserDone as done:
        return done.code if isinstance(done.code, int) else Exit.PASSED
    except SystemExit as ended:
        # An agent, check or library that calls exit has decided nothing.
        print(f"something that was run ended the program (SystemExit: {ended.code}) before it was done", file=sys.stderr)
        return ended.code if isinstance(ended.code, int) and ended.code else Exit.INTERRUPTED
    except Exception as error:
        if os.environ.get("PROCTOR_DEBUG"):
            raise
        # An unusable file of the user is not a bug.
        if isinstance(error, OSError) and error.filename is not None:
            print(f"cannot use {str(error.filename)!r}: {error.strerror}", file=sys.stderr)
            return Exit.USAGE
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            print(f"cannot write to standard output: {error.strerror}", file=sys.stderr)
            return Exit.USAGE
        print(f"proctor: internal error: {type(error).__name__}: {error}", file=sys.stderr)
        print("  this is a bug in proctor; PROCTOR_DEBUG=1 shows where", file=sys.stderr)
        return Exit.INTERNAL
    finally:
        _drop_output()


def _drop_output() -> None:
    """Discard unwritable output, so that Python does not fail at exit."""
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison] - it is, where the descriptor was closed
        return
    try:
        sys.stdout.flush()
    except OSError:
        # Python flushes standard output at exit and would return 120 on failure.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(write_usage())
        return Exit.PASSED if arguments else Exit.USAGE
    word, rest = arguments[0], arguments[1:]
    for command in COMMANDS:
        if command.name == word:
            return command.run(rest)
    print(f"proctor: unknown command {word!r}" + suggest(word, [command.name for command in COMMANDS]), file=sys.stderr)
    print("  `proctor --help` lists the commands", file=sys.stderr)
    return Exit.USAGE
