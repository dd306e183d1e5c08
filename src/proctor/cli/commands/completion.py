"""`proctor completion bash|zsh|fish`"""

from proctor.cli.main import COMMANDS
from proctor.cli.options.completion import SHELLS, write_completion
from proctor.cli.parser import make_parser
from proctor.cli.show.output import Output
from proctor.cli.signals.exit_codes import Exit


def run(arguments: list[str]) -> int:
    """Print a completion script; returns the exit code."""
    parser = make_parser(
        "completion",
        "Print a script that completes commands, options and their values in a shell.",
        ['eval "$(proctor completion bash)"', "proctor completion fish > ~/.config/fish/completions/proctor.fish"],
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    options = parser.parse_args(arguments)
    with Output(None) as output:
        output.write_text(write_completion(options.shell, COMMANDS))
    return Exit.PASSED
