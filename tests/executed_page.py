"""Reads a page of the documentation and executes it from top to bottom in an empty folder, as a reader would.

`<!-- file: NAME -->` before a block saves it under that name, which the text above shows too; `<!-- plugin -->` installs the package that
the page has described so far. In `console` blocks the output must be what the page shows; `...` matches anything. `<!-- run -->` before
a block of `sh` runs its lines, each of which must end with a verdict: exit code 0 or 1.

Run as a program, `python -P executed_page.py PAGE FOLDER`, it needs proctor and nothing else, so that a page can be tried where only those
packages are installed that the page names. `--write` updates the outputs in the page.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PATIENCE_S = 30

FENCE = re.compile(r"```(?P<language>\w*)\n(?P<body>.*?)```", re.DOTALL)
_DIRECTIVE = re.compile(r"<!-- (?P<verb>file|plugin|run)(?:: (?P<rest>.*?))? -->\n")
_PART = re.compile(f"{_DIRECTIVE.pattern}|{FENCE.pattern.replace('language', 'tongue')}", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_INSTALL = re.compile(r"pip install (?P<words>[^`\n#]+)")


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def find_executed_blocks(text: str) -> list[re.Match[str]]:
    """The blocks of a page that run as they are shown; those that are saved as files are not among them."""
    directives = {match.end(): match["verb"] for match in _DIRECTIVE.finditer(text)}
    blocks = [(directives.get(match.start()), match) for match in FENCE.finditer(text)]
    return [match for verb, match in blocks if verb == "run" or (verb != "file" and match["language"] in ("console", "python"))]


def is_executed(path: Path) -> bool:
    """Whether a page has commands or programs that run as they are shown."""
    return bool(find_executed_blocks(path.read_text(encoding="utf-8")))


def find_requirements(text: str) -> tuple[str, ...]:
    """Return the packages to install before the first command or program of a page: proctor, and what the text above names.

    The page's own package (`pip install .`) is left to `<!-- plugin -->`.
    """
    executed = find_executed_blocks(text)
    above = _COMMENT.sub("", text[: executed[0].start()] if executed else text)
    found = {"proctor-evals"}
    for match in _INSTALL.finditer(above):
        words = [word for word in shlex.split(match["words"]) if not word.startswith("-") and word != "."]
        found.update(words)
    return tuple(sorted(found))


def list_saved_files(text: str) -> Iterator[tuple[str, str]]:
    """Every file that a page has its reader save, with the visible text between it and the block or heading above it."""
    for match in _DIRECTIVE.finditer(text):
        if match["verb"] == "file":
            above = _COMMENT.sub("", FENCE.split(text[: match.start()])[-1])
            yield match["rest"], re.split(r"^#+ ", above, flags=re.MULTILINE)[-1]


class Execution:
    """One page being executed in one folder."""

    def __init__(self, folder: Path, *, write: bool = False) -> None:
        self.folder = folder
        self.site = folder.with_name(f"{folder.name}-site")
        self._write = write
        scripts = Path(sys.executable).parent
        assert (scripts / "proctor").exists(), f"proctor is not installed next to {sys.executable}"
        paths = {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(self.site)}
        self.environment = {**os.environ, **paths}
        self.names: dict[str, object] = {}

    def save(self, name: str, body: str) -> None:
        """Save a block under the name that the page gives."""
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(body, encoding="utf-8")

    def install(self) -> None:
        """Install what `pip install .` would, without pip and without a network."""
        project = tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        info = self.site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8")
        lines = [
            line
            for group, points in project["entry-points"].items()
            for line in (f"[{group}]", *(f"{key} = {value}" for key, value in points.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        for module in project["entry-points"]["proctor.checks"].values():
            shutil.copy(self.folder / f"{module}.py", self.site)

    def console(self, body: str) -> str:
        """Run the commands of a block; the block as it should be."""
        out: list[str] = []
        for command, shown in _commands(body):
            printed = self._run(command)
            found = re.sub(r"[ \t]+$", "", printed, flags=re.MULTILINE).strip("\n")
            shown = shown.strip("\n")
            pattern = ".*".join(re.escape(part) for part in shown.split("..."))
            if not re.fullmatch(pattern, found, re.DOTALL):
                assert self._write, f"$ {command}\nthe page shows:\n{shown}\nit printed:\n{found}"
                shown = found
            out += [f"$ {command}", *([shown] if shown else [])]
        return "\n".join(out) + "\n"

    def shell(self, body: str) -> None:
        """Run the lines of a block."""
        for line in filter(None, body.replace("\\\n", " ").splitlines()):
            self._run(line, passing=(0, 1))

    def python(self, body: str, page: str) -> None:
        """Run a program of the page; the next one continues in its namespace."""
        exec(compile(body, page, "exec"), self.names)  # noqa: S102 - the program is ours, from our own page

    def _run(self, command: str, passing: tuple[int, ...] = (0,)) -> str:
        """Return the output of a command. Ours run in this process unless a plugin was installed: starting Python takes longer."""
        ours = re.fullmatch(r'proctor ([^;|&>]*)(; echo "exit code \$\?")?', command)
        if ours is not None and not self.site.exists():
            with self._fresh_modules():
                code, printed = _in_process(shlex.split(ours[1], comments=True))
            if ours[2]:
                return f"{printed}exit code {code}\n"
            assert code in passing, f"$ {command}\nended with {code}:\n{printed}"
            return printed
        code, printed = _in_shell(command, self.folder, self.environment)
        assert code in passing, f"$ {command}\nended with {code}:\n{printed}"
        return printed

    @contextlib.contextmanager
    def _fresh_modules(self) -> Iterator[None]:
        """Unload the modules of the page afterwards: a reader runs the next command in another process."""
        known, path = set(sys.modules), list(sys.path)
        yield
        sys.path[:] = path
        for name in set(sys.modules) - known:
            if str(self.folder) in (getattr(sys.modules[name], "__file__", None) or ""):
                del sys.modules[name]


def _in_process(arguments: list[str]) -> tuple[int, str]:
    from proctor.cli.main import run

    caught = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(caught), contextlib.redirect_stderr(caught):
        code = run(arguments)
    caught.seek(0)
    return code, caught.read()


def _in_shell(command: str, folder: Path, environment: dict[str, str]) -> tuple[int | None, str]:
    """Exit code and output of a command; where it does not end in time everything that it started is ended, and there is no code."""
    with subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    ) as shell:
        try:
            printed, _ = shell.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            return None, shell.communicate()[0]
        return shell.returncode, printed


def _commands(body: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def execute(page: Path, folder: Path, *, write: bool = False) -> None:
    """Execute a page in an empty folder, which is also the current one."""
    text = page.read_text(encoding="utf-8")
    execution = Execution(folder, write=write)
    target: str | None = None
    is_run = False
    pieces: list[str] = []
    at = 0
    for match in _PART.finditer(text):
        pieces.append(text[at : match.start()])
        at = match.end()
        piece = match[0]
        if match["verb"] == "file":
            target = match["rest"]
        elif match["verb"] == "plugin":
            execution.install()
        elif match["verb"] == "run":
            is_run = True
        elif is_run:
            execution.shell(match["body"])
            is_run = False
        elif target is not None:
            execution.save(target, match["body"])
            target = None
        elif match["tongue"] == "console":
            piece = f"```console\n{execution.console(match['body'])}```"
        elif match["tongue"] == "python":
            execution.python(match["body"], page_id(page))
        pieces.append(piece)
    if write:
        page.write_text("".join([*pieces, text[at:]]), encoding="utf-8")


def run_page(python: Path, page: Path, folder: Path, *, write: bool = False) -> subprocess.CompletedProcess[str]:
    """Execute a page with another Python, in a separate process with a clean environment."""
    folder.mkdir(parents=True)
    keep = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "TMPDIR", "SSL_CERT_FILE")}
    return subprocess.run(
        [python, "-P", __file__, str(page), str(folder), *(["--write"] if write else [])],
        cwd=folder,
        env={**keep, "HOME": str(folder.parent), "NO_COLOR": "1", "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=2 * PATIENCE_S,
        check=False,
    )


if __name__ == "__main__":
    execute(Path(sys.argv[1]), Path(sys.argv[2]), write="--write" in sys.argv[3:])
