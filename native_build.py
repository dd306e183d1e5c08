"""Compiles the reader of traces to C, with mypyc. Where it is not compiled, the same Python source runs: that is the fallback.

`python native_build.py FOLDER` writes a compiled copy of the package. `hatch_build.py` adds the libraries to a native wheel.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
MODULES = (
    "evidence/otlp/protobuf.py",
    "evidence/otlp/wire_format.py",
    "evidence/shared/*.py",
    "evidence/traces/*.py",
    "evidence/unknowns/*.py",
    "evidence/values/*.py",
)
"""What is compiled, by measurement: `design/native.md`."""
INTERPRETED = (
    "evidence/shared/message.py",
    "evidence/shared/workflow.py",
    "evidence/traces/merge_returned_and_traced.py",
    "evidence/traces/rows.py",
    "evidence/traces/survey.py",
)
"""Modules that define structs: mypyc ignores the options of their classes, such as `frozen`."""
REQUIREMENTS = ("mypy==2.4.1", "setuptools>=80", "msgspec>=0.20")
"""What compiling needs in its environment; of msgspec, the types."""
_SETUP = """\
from mypyc.build import mypycify
from setuptools import setup

setup(name="proctor-native", ext_modules=mypycify({arguments!r}, opt_level="2", debug_level="0"))
"""


def list_modules(package: Path) -> list[Path]:
    """Return the files to compile, sorted."""
    found = {file for pattern in MODULES for file in package.glob(pattern) if file.name != "__init__.py"}
    return sorted(found - {package / name for name in INTERPRETED})


def build(folder: Path) -> list[Path]:
    """Write a copy of the package with compiled modules into `folder`, which is emptied first; return the libraries, as paths in it."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "src/proctor", folder / "proctor", ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd"))
    names = [file.relative_to(folder).as_posix() for file in list_modules(folder / "proctor")]
    script = folder / "setup.py"
    script.write_text(_SETUP.format(arguments=["--ignore-missing-imports", "--follow-imports=silent", *names]), encoding="utf-8")
    environment = dict(os.environ)
    if os.name == "posix":
        # The path of the folder must not reach the libraries.
        environment["CFLAGS"] = f"{environment.get('CFLAGS', '')} -g0 -ffile-prefix-map={folder}=."
    subprocess.run([sys.executable, script.name, "--quiet", "build_ext", "--inplace"], cwd=folder, env=environment, check=True)
    script.unlink()
    for left in ("build", ".mypy_cache"):
        shutil.rmtree(folder / left, ignore_errors=True)
    return sorted(file.relative_to(folder) for file in folder.rglob("*") if file.suffix in (".so", ".pyd"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    build(parser.parse_args().folder.resolve())
