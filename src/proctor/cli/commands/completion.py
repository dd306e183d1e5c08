"""`proctor completion bash|zsh|fish`

Completion is generated from the parsers of the commands.
"""

import argparse
import re
from collections.abc import Iterable
from typing import NamedTuple

from proctor.cli.exit_codes import Exit
from proctor.cli.main import COMMANDS
from proctor.cli.parser import collect_parser, make_parser
from proctor.cli.show.output import Output
from proctor.errors import ProctorError
from proctor.store.files.run_references import BASELINE, LATEST, PREVIOUS


def run(arguments: list[str]) -> int:
    """Print a completion script; returns the exit code."""
    parser = make_parser(
        "completion",
        "Print a script that completes commands, options and their values in a shell.",
        ['eval "$(proctor completion bash)"', "proctor completion fish > ~/.config/fish/completions/proctor.fish"],
    )
    parser.add_argument("shell", metavar="SHELL", choices=tuple(SHELLS), help=", ".join(SHELLS))
    options = parser.parse_args(arguments)
    with Output(None) as output:
        output.write_text(SHELLS[options.shell](list_command_words(COMMANDS)))
    return Exit.PASSED


_RUNS = (LATEST, PREVIOUS, BASELINE)
_RUN_NAMES = ("RUN", "BASE", "CANDIDATE")


class Flag(NamedTuple):
    """One option of a command."""

    names: tuple[str, ...]
    takes_value: bool
    values: tuple[str, ...]
    """The possible values, if known."""
    about: str


class CommandWords(NamedTuple):
    """What may follow a command."""

    name: str
    about: str
    flags: tuple[Flag, ...]
    words: tuple[str, ...]
    """Words without a dash, other than files."""


def list_command_words(entries: Iterable[tuple[str, str]]) -> list[CommandWords]:
    """Return the options of each command; none if its extra is not installed."""
    commands: list[CommandWords] = []
    for name, summary in entries:
        try:
            parser = collect_parser(name)
        except ProctorError:
            commands.append(CommandWords(name, summary, (), ()))
            continue
        flags = tuple(_read_flag(action) for action in parser._actions if action.option_strings)  # pyright: ignore[reportPrivateUsage]
        words = [action for action in parser._actions if not action.option_strings]  # pyright: ignore[reportPrivateUsage]
        commands.append(CommandWords(name, summary, flags, tuple(dict.fromkeys(word for action in words for word in _list_values(action)))))
    return commands


def _read_flag(action: argparse.Action) -> Flag:
    summary = re.sub(r"\s+", " ", (action.help or "").replace("%%", "%"))
    return Flag(tuple(action.option_strings), action.nargs != 0, _list_values(action), summary[:100])


def _list_values(action: argparse.Action) -> tuple[str, ...]:
    if action.choices is not None:
        return tuple(str(choice) for choice in action.choices)
    return _RUNS if action.metavar in _RUN_NAMES or "--resume" in action.option_strings else ()


def _join(words: Iterable[str]) -> str:
    return " ".join(words)


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _list_names(command: CommandWords) -> list[str]:
    return [name for flag in command.flags for name in flag.names]


def _write_bash(commands: list[CommandWords]) -> str:
    lines = [
        "# completion of proctor for bash: proctor completion bash > ~/.local/share/bash-completion/completions/proctor",
        "_proctor() {",
        '    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"',
        "    COMPREPLY=()",
        '    if [ "$COMP_CWORD" -eq 1 ]; then',
        f'        COMPREPLY=($(compgen -W "{_join(command.name for command in commands)} --help --version" -- "$cur"))',
        "        return",
        "    fi",
        '    case "${COMP_WORDS[1]}" in',
    ]
    for command in commands:
        lines += [f"    {command.name})", '        case "$prev" in']
        for flag in command.flags:
            if flag.values:
                lines.append(f"""        {"|".join(flag.names)}) COMPREPLY=($(compgen -W "{_join(flag.values)}" -- "$cur")); return ;;""")
            elif flag.takes_value:
                lines.append(f"""        {"|".join(flag.names)}) COMPREPLY=($(compgen -f -- "$cur")); return ;;""")
        lines += [
            "        esac",
            f"""        case "$cur" in -*) COMPREPLY=($(compgen -W "{_join(_list_names(command))}" -- "$cur")); return ;; esac""",
            f"""        COMPREPLY=($(compgen -W "{_join(command.words)}" -f -- "$cur"))""",
            "        ;;",
        ]
    return "\n".join([*lines, "    esac", "}", "complete -o filenames -F _proctor proctor", ""])


def _write_zsh(commands: list[CommandWords]) -> str:
    lines = [
        "#compdef proctor",
        "# completion of proctor for zsh: proctor completion zsh > a folder of $fpath, as the file _proctor",
        "_proctor() {",
        "    local -a found",
        "    if (( CURRENT == 2 )); then",
        "        found=(" + _join(_quote(f"{command.name}:{command.about}") for command in commands) + ")",
        "        _describe command found",
        "        return",
        "    fi",
        "    case $words[2] in",
    ]
    for command in commands:
        lines += [f"    ({command.name})", "        case $words[CURRENT-1] in"]
        for flag in command.flags:
            if flag.takes_value:
                values = f"compadd -- {_join(flag.values)}" if flag.values else "_files"
                lines.append(f"        ({'|'.join(flag.names)}) {values}; return ;;")
        lines += [
            "        esac",
            f"        if [[ $PREFIX == -* ]]; then compadd -- {_join(_list_names(command))}; return; fi",
            *([f"        compadd -- {_join(command.words)}"] if command.words else []),
            "        _files",
            "        ;;",
        ]
    return "\n".join([*lines, "    esac", "}", "compdef _proctor proctor", ""])


def _write_fish(commands: list[CommandWords]) -> str:
    lines = ["# completion of proctor for fish: proctor completion fish > ~/.config/fish/completions/proctor.fish"]
    for command in commands:
        lines.append(f"complete -c proctor -f -n __fish_use_subcommand -a {command.name} -d {_quote(command.about)}")
        when = _quote(f"__fish_seen_subcommand_from {command.name}")
        if command.words:
            lines.append(f"complete -c proctor -n {when} -a {_quote(_join(command.words))}")
        for flag in command.flags:
            names = _join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names)
            value = f" -x -a {_quote(_join(flag.values))}" if flag.values else " -r" if flag.takes_value else ""
            lines.append(f"complete -c proctor -n {when} {names}{value} -d {_quote(flag.about)}")
    return "\n".join([*lines, ""])


SHELLS = {"bash": _write_bash, "zsh": _write_zsh, "fish": _write_fish}
