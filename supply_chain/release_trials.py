"""Tries a wheel in new environments: the first steps on every Python, every module with all extras, every command with each extra alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from supply_chain.locked import CORE, ROOT

OLDEST = (3, 11)
NEWEST_TRIED = 16
"""The highest minor version of Python that is looked for on this machine."""
HINT = "pip install 'proctor-evals["
"""What every command says that needs an extra."""
SERVES_S = 8
"""How long a command that serves until it is stopped must stay up to count as working, in seconds."""


class Interpreter(NamedTuple):
    """An interpreter on this machine."""

    path: str
    version: str


class Probe(NamedTuple):
    """A command that needs an extra."""

    extras: tuple[str, ...]
    """It works with any of these."""
    command: tuple[str, ...]
    serves: bool = False


PROBES = (
    Probe(("live", "mcp", "serve", "postgres", "providers", "all"), ("try", "hello", "--target", "http://127.0.0.1:9/")),
    Probe(("serve", "postgres", "all"), ("serve", "--port", "0", "--database", "sqlite:///probe.db"), serves=True),
    Probe(("serve", "postgres", "all"), ("keys", "list", "--database", "sqlite:///probe.db")),
    Probe(("serve", "postgres", "all"), ("mcp",)),
    Probe(("postgres", "all"), ("db", "status", "--database", "postgresql://nobody@127.0.0.1:9/none")),
    Probe(("data", "dask", "all"), ("batch", "suite.yaml", "evidence.jsonl", "--output", "checked")),
    Probe(("dask", "all"), ("batch", "suite.yaml", "evidence.jsonl", "--output", "on-dask", "--engine", "dask", "--workers", "1")),
    Probe(("language", "all"), ("check", "language.yaml", "evidence.jsonl")),
    Probe(("health", "all"), ("check", "fhirpath.yaml", "evidence.jsonl")),
    Probe(("otlp", "serve", "postgres", "all"), ("check", "suite.yaml", "trace.pb")),
)
"""Commands that need an extra. `fax`, `sftp` and `providers` are needed by parts of commands only, and have tests of their own."""

SUITES = {
    "language.yaml": "proctor: 1\ncases: [{id: refund, expect: [{language_is: en}]}]\n",
    "fhirpath.yaml": (
        "proctor: 1\ncases: [{id: refund, expect: [{fhir_resource: "
        '{resource_type: Patient, search: {}, fields: [{fhirpath: "name.exists()"}]}}]}]\n'
    ),
}


def list_pythons() -> list[Interpreter]:
    """Return every interpreter from 3.11 on that is found on this machine, one per minor version."""
    found: dict[str, Interpreter] = {}
    uv = shutil.which("uv")
    for minor in range(OLDEST[1], NEWEST_TRIED):
        name = f"{OLDEST[0]}.{minor}"
        paths = [shutil.which(f"python{name}"), *sorted(map(str, Path.home().glob(f".pyenv/versions/{name}.*/bin/python")))]
        if uv is not None:
            done = subprocess.run([uv, "python", "find", "--no-python-downloads", name], capture_output=True, text=True, check=False)
            paths.append(done.stdout.strip() if done.returncode == 0 else None)
        for path in filter(None, paths):
            done = subprocess.run(
                [path, "-c", "import sys, venv; print(*sys.version_info[:2], sep='.')"], capture_output=True, text=True, check=False
            )
            if done.stdout.strip() == name:
                found.setdefault(name, Interpreter(path, name))
    return list(found.values())


def try_python(wheel: Path, python: Interpreter) -> list[str]:
    """Return what goes wrong in the first minute on one Python."""
    steps: tuple[tuple[tuple[str, ...], int, str], ...] = (
        (("proctor", "--version"), 0, wheel.name.split("-")[1]),
        (("proctor-evals", "--version"), 0, wheel.name.split("-")[1]),
        (("proctor", "demo"), 0, "failed"),
        (("proctor", "init", "."), 0, "next: proctor check"),
        (("proctor", "check", "suite.yaml", "evidence.jsonl"), 1, "1 failed, 1 passed"),
        (("python", "-W", "error", "-c", "import proctor; print(proctor.check.__name__)"), 0, "check"),
    )
    problems: list[str] = []
    with _install(wheel, "", python.path) as folder:
        for command, code, text in steps:
            done = _call(folder, command)
            if done.returncode != code or text not in done.stdout + done.stderr:
                problems.append(f"Python {python.version}: `{' '.join(command)}` ended with {done.returncode}: {_shorten(done)}")
    return problems


def try_modules(wheel: Path) -> list[str]:
    """Return the modules that cannot be imported with every extra."""
    code = (
        "import importlib, pkgutil, proctor, sys\n"
        "for module in pkgutil.walk_packages(proctor.__path__, 'proctor.'):\n"
        "    try: importlib.import_module(module.name)\n"
        "    except Exception as error: print(f'{module.name}: {error!r}')\n"
    )
    with _install(wheel, "all,providers,sftp", sys.executable) as folder:
        # What users bring along: pytest for the plugin, the SDK of OpenTelemetry to capture spans.
        _call(folder, ("python", "-m", "pip", "install", "--quiet", "pytest", "opentelemetry-sdk"))
        done = _call(folder, ("python", "-c", code))
    lines = done.stdout.splitlines() if done.returncode == 0 else [_shorten(done)]
    return [f"import of every module: {line}" for line in lines]


def try_extras(wheel: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each extra, none first, with its problems: a command that asks for an installed extra, or that does not name a missing one."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    for extra in ("", *extras):
        problems: list[str] = []
        with _install(wheel, extra, sys.executable) as folder:
            _call(folder, ("proctor", "init", "."))
            for name, text in SUITES.items():
                (folder / name).write_text(text, encoding="utf-8")
            (folder / "trace.pb").write_bytes(b"\x0a\x00")
            for probe in PROBES:
                done = _call(folder, ("proctor", *probe.command), serves=probe.serves)
                output = done.stdout + done.stderr
                named = HINT in output
                what = f"{CORE}[{extra}]: `proctor {' '.join(probe.command)}`"
                if "Traceback" in output:
                    problems.append(f"{what} prints a traceback: {_shorten(done)}")
                elif extra in probe.extras and named:
                    problems.append(f"{what} asks for an extra that should not be needed: {_shorten(done)}")
                elif extra not in probe.extras and not named:
                    problems.append(f"{what} does not name the extra it needs: {_shorten(done)}")
        yield extra, problems


@contextmanager
def _install(wheel: Path, extras: str, python: str) -> Iterator[Path]:
    """An empty folder with an environment that has the wheel and these extras."""
    with tempfile.TemporaryDirectory(prefix="proctor-trial-") as name:
        folder = Path(name)
        wanted = f"{CORE}[{extras}] @ {wheel.resolve().as_uri()}" if extras else str(wheel)
        if (uv := shutil.which("uv")) is not None:
            commands = [
                [uv, "venv", "--quiet", "--seed", "--python", python, str(folder / ".venv")],
                [uv, "pip", "install", "--quiet", "--python", str(folder / ".venv/bin/python"), wanted],
            ]
        else:
            commands = [
                [python, "-m", "venv", str(folder / ".venv")],
                [str(folder / ".venv/bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted],
            ]
        for command in commands:
            subprocess.run(command, check=True, capture_output=True)
        yield folder


def _call(folder: Path, command: Sequence[str], *, serves: bool = False) -> subprocess.CompletedProcess[str]:
    arguments = [str(folder / ".venv" / "bin" / command[0]), *command[1:]]
    environment = {"PATH": str(folder / ".venv" / "bin") + ":/usr/bin:/bin", "HOME": str(folder), "NO_COLOR": "1"}
    if not serves:
        return subprocess.run(
            arguments, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False
        )
    process = subprocess.Popen(arguments, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    end = time.monotonic() + SERVES_S
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    process.terminate()
    output, _ = process.communicate(timeout=60)
    return subprocess.CompletedProcess(arguments, process.returncode, output, "")


def _shorten(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join((done.stdout + done.stderr).split())[-300:]
