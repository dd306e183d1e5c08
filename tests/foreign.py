"""Foreign software that tests drive: installed once for all workers, and used only when the installation is complete."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

UV = os.environ.get("UV") or shutil.which("uv")
PATIENCE_S = 300


def install_once(folder: Path, wanted: str, install: Callable[[Path], None]) -> Path:
    """Return the folder after `install` has filled it; it is filled again only if `wanted` changes.

    Workers of one run need the same folder at the same time. One worker installs under a lock and writes the mark that the others look
    for last. Use another folder for other packages: the content is deleted even while another worker uses it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    mark = folder / ".installed"
    with open(folder.parent / f"{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if mark.exists() and mark.read_text(encoding="utf-8") == wanted:
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        install(folder)
        mark.write_text(wanted, encoding="utf-8")
    return folder


def run_or_skip(command: Sequence[str | Path], folder: Path) -> None:
    """Run an installer; skip the test with its message if the packages are not available."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"cannot be installed: {error}")
    if done.returncode != 0:
        pytest.skip(f"cannot be installed: {' '.join(map(str, command))} ended with {done.returncode}: {done.stderr[-500:]}")


def install_from_npm(folder: Path, *packages: str) -> Path:
    """Return the `node_modules` with the packages."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("npm and node are not installed")

    def install(folder: Path) -> None:
        run_or_skip(["npm", "install", "--no-fund", "--no-audit", "--prefix", folder, *packages], folder)

    return install_once(folder, "\n".join(packages), install) / "node_modules"


def install_from_index(folder: Path, *packages: str) -> Path:
    """Return the `bin` of an environment with the Python packages."""

    def install(folder: Path) -> None:
        python = folder / "bin/python"
        if UV:
            run_or_skip([UV, "venv", "--quiet", "--allow-existing", "--python", sys.executable, folder], folder)
            run_or_skip([UV, "pip", "install", "--quiet", "--python", python, *packages], folder)
        else:
            run_or_skip([sys.executable, "-m", "venv", folder], folder)
            run_or_skip([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], folder)

    return install_once(folder, "\n".join(packages), install) / "bin"


def build_wheel(source: Path, folder: Path) -> Path:
    """Build the wheel of a checkout into a folder; returns its path."""
    builder = (
        [UV, "build", "--quiet", "--wheel", "--out-dir"] if UV else [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w"]
    )
    run_or_skip([*builder, folder, source], source)
    return next(folder.glob("*.whl"))


def replace_wheel(python: Path, wheel: Path) -> None:
    """Install a wheel into an environment with its dependencies, even over the same version."""
    if UV:
        run_or_skip([UV, "pip", "install", "--quiet", "--no-deps", "--reinstall", "--python", python, wheel], wheel.parent)
    else:
        run_or_skip([python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", wheel], wheel.parent)
