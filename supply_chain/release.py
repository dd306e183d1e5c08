"""Builds and checks a release: `make release`, or `make release VERSION=0.2.0`, which also folds the notes and makes the tag.

Everything is built in a separate work tree, from committed files. The same commit gives the same bytes: every time stamp is that of the
commit. Nothing is published here: a pushed tag starts `.github/workflows/release.yml`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from email.parser import Parser
from pathlib import Path

from docs.changelog import find_section, fold_changes

from supply_chain.bill import FILE as BILL
from supply_chain.bill import main as write_bill
from supply_chain.locked import CORE, ROOT
from supply_chain.release_trials import list_pythons, try_extras, try_modules, try_python

DIST = ROOT / "dist"
BACKEND = "hatchling==1.33.0"
MAX_WHEEL = 3 * 1024 * 1024
"""Bytes of the wheel."""
MAX_INSTALLED = 15 * 1024 * 1024
"""Bytes of the files that the wheel installs, without bytecode."""
NEEDED = ("proctor/__init__.py", "proctor/__init__.pyi", "proctor/py.typed", "proctor/docs.json.bz2")
UNWANTED = ("__pycache__", ".pyc", ".DS_Store", ".venv", "tests/", ".orig")
VERSION_FILE = Path("src/proctor/__init__.py")


class ReleaseError(Exception):
    """The release cannot be made; the message says why and what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, check and describe a release."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument(
        "version", nargs="?", help="fold the notes under this version and tag it; without it, the last commit is built as it is"
    )
    parser.add_argument("--quick", action="store_true", help="only build and check the files; no trial in new environments")
    options = parser.parse_args(arguments)
    try:
        make_release(options.version or None, quick=options.quick)
    except (ReleaseError, ValueError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def make_release(version: str | None, *, quick: bool = False) -> None:
    """Build the release of the last commit. With a version, the release is that commit plus the folded notes, and gets a tag."""
    if _git("status", "--porcelain", "--untracked-files=no"):
        raise ReleaseError("there are uncommitted changes; commit them first")
    commit = "HEAD"
    if version is not None and (tagged := _git("tag", "--list", f"v{version}")):
        print(f"{tagged} exists: it is built again")
        commit, version = tagged, None
    with _check_out(commit) as tree:
        if version is not None:
            prepare_commit(tree, version)
        _report("building wheel and sdist twice")
        files = build_twice(tree)
        problems = [*check_wheel(files[0], read_version(tree)), *check_sdist(files[1])]
        if not quick:
            problems += _try_wheel(files[0])
        if problems:
            raise ReleaseError("not fit for release:\n  " + "\n  ".join(problems))
        _write_dist(tree, files)
        if version is not None:
            _git("tag", "--annotate", "--message", f"proctor {version}", f"v{version}", "HEAD", folder=tree)
            print(f"tagged v{version}; to publish it: git merge --ff-only v{version} && git push origin main v{version}")


def prepare_commit(tree: Path, version: str) -> None:
    """Commit the version and the folded notes. The dates are those of the last commit, so that the same release has the same commit."""
    code = (tree / VERSION_FILE).read_text(encoding="utf-8")
    (tree / VERSION_FILE).write_text(code.replace(f'__version__ = "{read_version(tree)}"', f'__version__ = "{version}"'), encoding="utf-8")
    seconds = int(_git("log", "-1", "--format=%ct", folder=tree))
    fold_changes(tree, version, datetime.fromtimestamp(seconds, UTC).date().isoformat())
    _git("add", "--all", folder=tree)
    date = {"GIT_AUTHOR_DATE": f"@{seconds} +0000", "GIT_COMMITTER_DATE": f"@{seconds} +0000"}
    _git("commit", "--quiet", "--no-verify", "--message", f"Release {version}", folder=tree, environment=date)


def build_twice(tree: Path) -> tuple[Path, Path]:
    """Return the wheel and the sdist of a work tree. Raises `ReleaseError` if a second build has other bytes."""
    python = _make_builder()
    environment = {"SOURCE_DATE_EPOCH": _git("log", "-1", "--format=%ct", folder=tree), "PYTHONDONTWRITEBYTECODE": "1"}
    found: list[dict[str, Path]] = []
    for number in (1, 2):
        folder = tree.parent / f"build-{number}"
        _run([str(python), "-m", "hatchling", "build", "--directory", str(folder)], folder=tree, environment=environment)
        found.append({file.suffix: file for file in folder.iterdir()})
    for suffix, file in found[0].items():
        if file.read_bytes() != found[1][suffix].read_bytes():
            raise ReleaseError(f"two builds of {file.name} differ")
    return found[0][".whl"], found[0][".gz"]


def check_wheel(wheel: Path, version: str) -> list[str]:
    """Return what is wrong with a wheel: its size, its files, its metadata."""
    problems: list[str] = []
    if (size := wheel.stat().st_size) > MAX_WHEEL:
        problems.append(f"the wheel has {size:,} bytes; the limit is {MAX_WHEEL:,}")
    with zipfile.ZipFile(wheel) as archive:
        if (installed := sum(member.file_size for member in archive.infolist())) > MAX_INSTALLED:
            problems.append(f"the wheel installs {installed:,} bytes; the limit is {MAX_INSTALLED:,}")
        names = archive.namelist()
        problems += [f"the wheel has no {name}" for name in NEEDED if name not in names]
        problems += [f"the wheel contains {name}" for name in names if any(part in name for part in UNWANTED)]
        text = next(archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    return problems + check_metadata(text, version)


def check_metadata(text: str, version: str) -> list[str]:
    """Return what is wrong with the metadata of a wheel."""
    metadata = Parser().parsestr(text)
    expected = {
        "Name": CORE,
        "Version": version,
        "License-Expression": "Apache-2.0",
        "Requires-Python": ">=3.11",
        "Description-Content-Type": "text/markdown",
    }
    problems = [
        f"metadata: {name} is {metadata[name]!r}, expected {value!r}" for name, value in expected.items() if metadata[name] != value
    ]
    if "pip install proctor-evals" not in str(metadata.get_payload()):
        problems.append("metadata: the description is not the README")
    return problems


def check_sdist(sdist: Path) -> list[str]:
    """Return what is wrong with a source distribution."""
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    problems = [f"the sdist has no {name}" for name in ("pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md") if name not in names]
    return problems + [f"the sdist contains {name}" for name in names if any(part in name for part in UNWANTED if part != "tests/")]


def read_version(tree: Path = ROOT) -> str:
    """Return the version in the source of a work tree."""
    lines = (tree / VERSION_FILE).read_text(encoding="utf-8").splitlines()
    return next(line.partition('"')[2].rstrip('"') for line in lines if line.startswith("__version__ = "))


def _try_wheel(wheel: Path) -> list[str]:
    problems: list[str] = []
    for python in list_pythons():
        _report(f"first steps on Python {python.version}")
        problems += try_python(wheel, python)
    _report("every module with every extra")
    problems += try_modules(wheel)
    for extra, found in try_extras(wheel):
        _report(f"the commands with the extra {extra or 'none'}")
        problems += found
    return problems


def _write_dist(tree: Path, files: Sequence[Path]) -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    for file in files:
        shutil.copy(file, DIST)
    if write_bill() != 0:
        raise ReleaseError("the bill of materials could not be written")
    (DIST / "release-notes.md").write_text(
        find_section((tree / "CHANGELOG.md").read_text(encoding="utf-8"), read_version(tree)), encoding="utf-8"
    )
    listed = [DIST / file.name for file in files] + [BILL]
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in listed)
    (DIST / "SHA256SUMS").write_text(sums, encoding="utf-8")
    for file in listed:
        print(f"{file.stat().st_size:>10,}  {hashlib.sha256(file.read_bytes()).hexdigest()[:16]}  dist/{file.name}")


@contextmanager
def _check_out(commit: str) -> Iterator[Path]:
    """A detached work tree of one commit, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="proctor-release-") as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _make_builder() -> Path:
    folder = ROOT / ".venv" / "release"
    python = folder / "bin" / "python"
    if not (folder / BACKEND).exists():
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", BACKEND])
        (folder / BACKEND).touch()
    return python


def _git(*arguments: str, folder: Path = ROOT, environment: Mapping[str, str] | None = None) -> str:
    return _run(["git", *arguments], folder=folder, environment=environment).strip()


def _run(command: Sequence[str], *, folder: Path = ROOT, environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=folder, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"`{' '.join(command)}` failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def _report(step: str) -> None:
    print(f"release: {step} ...", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
