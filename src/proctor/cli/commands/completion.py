"""`proctor completion bash|zsh|fish`

The printed script calls `proctor completion words ...` at each TAB, so it fits every version of the commands.
"""

import argparse

from proctor.cli.exit_codes import Exit
from proctor.cli.main import COMMANDS
from proctor.cli.parser import collect_parser, make_parser
from proctor.cli.show.output import Output
from proctor.errors import ProctorError
from proctor.store.files.run_references import BASELINE, LATEST, PREVIOUS

_WORDS = "words"
"""In place of a shell: print what completes the last of the words that follow."""
_RUNS = (LATEST, PREVIOUS, BASELINE)
_RUN_NAMES = ("RUN", "BASE", "CANDIDATE")
SHELLS = {
    "bash": """\
# completion of proctor for bash: proctor completion bash > ~/.local/share/bash-completion/completions/proctor
_proctor() {
    local IFS=$'\\n'
    COMPREPLY=($(proctor completion words "${COMP_WORDS[@]:1:COMP_CWORD}"))
    if [ "$COMP_CWORD" -gt 1 ]; then COMPREPLY+=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")); fi
}
complete -o filenames -F _proctor proctor
""",
    "zsh": """\
#compdef proctor
# completion of proctor for zsh: proctor completion zsh > a folder of $fpath, as the file _proctor
_proctor() {
    local -a found
    found=(${(f)"$(proctor completion words "${(@)words[2,CURRENT]}")"})
    compadd -- $found
    if (( CURRENT > 2 )); then _files; fi
}
compdef _proctor proctor
""",
    "fish": """\
# completion of proctor for fish: proctor completion fish > ~/.config/fish/completions/proctor.fish
complete -c proctor -n __fish_use_subcommand -f
complete -c proctor -a '(proctor completion words (commandline -opc)[2..] "$(commandline -ct)")'
""",
}


def run(arguments: list[str]) -> int:
    """Print a completion script, or the words that it asks for; returns the exit code."""
    if arguments[:1] == [_WORDS]:
        with Output(None) as output:
            output.write_text("".join(f"{word}\n" for word in list_words(arguments[1:])))
        return Exit.PASSED
    parser = make_parser(
        "completion",
        "Print a script that completes commands, options and their values in a shell.",
        ['eval "$(proctor completion bash)"', "proctor completion fish > ~/.config/fish/completions/proctor.fish"],
    )
    parser.add_argument("shell", metavar="SHELL", choices=tuple(SHELLS), help=", ".join(SHELLS))
    options = parser.parse_args(arguments)
    with Output(None) as output:
        output.write_text(SHELLS[options.shell])
    return Exit.PASSED


def list_words(line: list[str]) -> list[str]:
    """Return what the last word of a command line may become: a command, an option, or the value of an option; shells add files."""
    *before, current = line or [""]
    names = [command.name for command in COMMANDS]
    if not before:
        words = [*names, "--help", "--version"]
    else:
        words = _list_after(before) if before[0] in names else []
    return [word for word in dict.fromkeys(words) if word.startswith(current) and (current.startswith("-") or not word.startswith("-"))]


def _list_after(before: list[str]) -> list[str]:
    try:
        actions = collect_parser(before[0])._actions  # pyright: ignore[reportPrivateUsage]
    except ProctorError:  # its extra is not installed
        return []
    taking = next((action for action in actions if before[-1] in action.option_strings and action.nargs != 0), None)
    if taking is not None:
        return _list_values(taking)
    return [word for action in actions for word in action.option_strings or _list_values(action)]


def _list_values(action: argparse.Action) -> list[str]:
    if action.choices is not None:
        return list(map(str, action.choices))
    return list(_RUNS) if action.metavar in _RUN_NAMES or "--resume" in action.option_strings else []
