"""Packs the docs into one file of the wheel, and adds the compiled modules if `PROCTOR_NATIVE=1`.

The MCP server offers the pages as resources; one packed file has a fifth of their size.
"""

from __future__ import annotations

import bz2
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LEFT_OUT = (
    "explanation/fidelity.md",
    "reference/checks.md",
    "reference/command-line.md",
    "reference/doctor.md",
    "reference/frameworks.md",
    "reference/functions.md",
    "reference/licences.md",
    "reference/matchers.md",
    "reference/mcp.md",
    "reference/python.md",
    "reference/rest.md",
    "reference/service-settings.md",
    "reference/simulator-kinds.md",
    "reference/verification.md",
)
"""Pages that the program shows itself (`describe`, `--help`, `tools/list`, `/openapi.json`), and long tables: a third of all text."""


class WheelHook(BuildHookInterface):
    """Adds `proctor/docs.json.bz2`, the text of nearly every page by its path, and the libraries of a native wheel."""

    def dependencies(self) -> list[str]:
        """Return what compiling needs."""
        return list(_native_build().REQUIREMENTS) if _is_native() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file; an editable installation reads the pages themselves."""
        if version == "editable":
            return
        folder = Path(self.root) / "docs"
        paths = {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob("*.md"))}
        pages = {path: file.read_text(encoding="utf-8") for path, file in paths.items() if path not in LEFT_OUT}
        packed = Path(self.directory) / "docs.json.bz2"
        packed.parent.mkdir(parents=True, exist_ok=True)
        packed.write_bytes(bz2.compress(json.dumps(pages, ensure_ascii=False).encode()))
        build_data["force_include"][str(packed)] = "proctor/docs.json.bz2"
        if _is_native():
            compiled = Path(self.directory) / "native"
            libraries = _native_build().build(compiled.resolve())
            build_data["force_include"].update({str(compiled / file): file.as_posix() for file in libraries})
            build_data.update(pure_python=False, infer_tag=True)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what is in the wheel now."""
        (Path(self.directory) / "docs.json.bz2").unlink(missing_ok=True)
        shutil.rmtree(Path(self.directory) / "native", ignore_errors=True)


def _is_native() -> bool:
    return os.environ.get("PROCTOR_NATIVE") == "1"


def _native_build() -> Any:
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import native_build  # a build backend does not put the project on the path

    return native_build
