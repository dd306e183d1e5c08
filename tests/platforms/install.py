"""Installs the real n8n and Flowise, each in its own folder: `python -m tests.platforms.install [n8n|flowise ...]`.

The folder is `PROCTOR_PLATFORMS`, or `.platforms` in the checkout. A platform whose recipe has completed is not changed;
one that was interrupted, or whose recipe has changed, is installed again. Nothing is installed anywhere else.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

CHECKOUT = Path(__file__).parents[2]
LONGEST_STEP_S = 45 * 60
# Browsers and other downloads of packages; none of them is needed here.
QUIET = {
    "npm_config_audit": "false",
    "npm_config_fund": "false",
    "npm_config_update_notifier": "false",
    "PUPPETEER_SKIP_DOWNLOAD": "true",
    "PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD": "1",
}


class InstallError(Exception):
    """The platform cannot be installed; names the command that failed and its last output."""


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """One platform: its npm packages and install commands."""

    name: str
    version: str
    manifest: dict[str, Any]
    """The `package.json`."""
    steps: tuple[tuple[str, ...], ...]
    """The commands, in order."""
    proof: str
    """A file that exists when everything is built."""
    about: str

    def folder(self, root: Path) -> Path:
        return root / self.name

    def recipe(self) -> str:
        """Everything that the installed result depends on."""
        return json.dumps({"manifest": self.manifest, "steps": self.steps}, indent=1, sort_keys=True)


N8N = Platform(
    name="n8n",
    version="2.8.4",
    manifest={
        "name": "proctor-platform-n8n",
        "private": True,
        "dependencies": {"n8n": "2.8.4", "@opentelemetry/core": "2.1.0"},
        # The registry does not have the version of the first that n8n names; the second no longer supports Node 20.
        "overrides": {"xlsx": "0.18.5", "@langchain/langgraph-checkpoint": "1.0.0"},
    },
    steps=(("npm", "install", "--legacy-peer-deps"),),
    proof="node_modules/n8n/bin/n8n",
    about="about 8 minutes and 1.7 GB",
)

FLOWISE = Platform(
    name="flowise",
    version="3.1.2",
    manifest={"name": "proctor-platform-flowise", "private": True, "dependencies": {"flowise": "3.1.2"}},
    # Scripts would build a dozen native packages that a flow on loopback never loads; only the database is built.
    steps=(("npm", "install", "--ignore-scripts"), ("npm", "rebuild", "sqlite3")),
    proof="node_modules/sqlite3/build/Release/node_sqlite3.node",
    about="10 to 15 minutes and 2.9 GB",
)

PLATFORMS = {platform.name: platform for platform in (N8N, FLOWISE)}


def platforms_folder() -> Path:
    """The folder of the platforms."""
    named = os.environ.get("PROCTOR_PLATFORMS")
    return Path(named).expanduser().absolute() if named else CHECKOUT / ".platforms"


def is_installed(platform: Platform, root: Path) -> bool:
    """Whether the recipe has completed and its result still exists."""
    folder = platform.folder(root)
    try:
        package = json.loads((folder / "node_modules" / platform.name / "package.json").read_text(encoding="utf-8"))
        done = (folder / "installed.json").read_text(encoding="utf-8") == platform.recipe()
    except (OSError, ValueError):
        return False
    return done and package.get("version") == platform.version and (folder / platform.proof).exists()


def install(platform: Platform, root: Path) -> bool:
    """Install it if needed; returns whether anything was done. Raises `InstallError`."""
    folder = platform.folder(root)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone_in(folder):
        if is_installed(platform, root):
            return False
        _check_node()
        (folder / "installed.json").unlink(missing_ok=True)
        (folder / "package.json").write_text(json.dumps(platform.manifest, indent=1), encoding="utf-8")
        for step in platform.steps:
            _run(step, folder)
        (folder / "installed.json").write_text(platform.recipe(), encoding="utf-8")
        if not is_installed(platform, root):
            raise InstallError(f"npm ended well, but {folder / platform.proof} is not there")
    return True


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Two installations at once would damage each other, so the second waits."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _check_node() -> None:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise InstallError(f"{program} is not installed; both platforms need Node 20.19 or later, 22, or 24")
    installed = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    found = re.match(r"v(\d+)\.(\d+)", installed)
    if found is None or tuple(map(int, found.groups())) < (20, 19):
        raise InstallError(f"node {installed} is too old; both platforms need Node 20.19 or later, 22, or 24")


def _run(step: Sequence[str], folder: Path) -> None:
    """Run one command with its output in `install.log`; at the time limit all of its processes are ended."""
    log = folder / "install.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            step,
            cwd=folder,
            env={**os.environ, **QUIET},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(LONGEST_STEP_S)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise InstallError(f"`{' '.join(step)}` in {folder} took more than {LONGEST_STEP_S} s; see {log}") from None
            raise
    if code != 0:
        last = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-30:])
        raise InstallError(f"`{' '.join(step)}` in {folder} ended with {code}:\n{last}")


def main(names: Sequence[str]) -> int:
    """Install the named platforms, or both."""
    unknown = [name for name in names if name not in PLATFORMS]
    if unknown:
        print(f"unknown platform {unknown[0]!r}; there are: {', '.join(PLATFORMS)}", file=sys.stderr)
        return 2
    root = platforms_folder()
    for name in names or PLATFORMS:
        platform = PLATFORMS[name]
        if not is_installed(platform, root):
            print(f"installing {name} {platform.version} in {platform.folder(root)}: {platform.about}", flush=True)
        started = time.monotonic()
        try:
            worked = install(platform, root)
        except InstallError as error:
            print(error, file=sys.stderr)
            return 1
        print(f"{name} {platform.version}: " + (f"installed in {time.monotonic() - started:.0f} s" if worked else "is installed"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
