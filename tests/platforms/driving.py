"""`proctor run` as a user starts it: a workspace on disk, the real command, and its verdicts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec


class Verdicts(msgspec.Struct, frozen=True):
    """The output of the command."""

    code: int
    document: dict[str, Any]
    stderr: str

    @property
    def outcomes(self) -> dict[str, str]:
        """The outcome of every case."""
        return {case["id"]: case["outcome"] for case in self.document["cases"]}

    def why(self, case: str) -> str:
        """The result of one case as text, to search it."""
        return json.dumps(next(entry for entry in self.document["cases"] if entry["id"] == case))


def proctor_run(
    folder: Path, targets: dict[str, Any], suite: str, *arguments: str, environment: dict[str, str] | None = None, timeout_s: float = 240
) -> Verdicts:
    """Write the workspace and run the suite in it; the first target is the default one."""
    folder.mkdir(parents=True, exist_ok=True)
    workspace = {"targets": targets, "default_target": next(iter(targets))}
    (folder / "proctor.yaml").write_text(json.dumps(workspace), encoding="utf-8")
    (folder / "suite.yaml").write_text(suite, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "proctor", "run", "suite.yaml", "--format", "json", *arguments],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.stdout.startswith("{"), f"proctor ended with {done.returncode}: {done.stdout}\n{done.stderr}"
    return Verdicts(done.returncode, json.loads(done.stdout), done.stderr)


def read_output_files(folder: Path) -> str:
    """The content of every file that the runs wrote, to search for secrets."""
    return "\n".join(
        path.read_text(encoding="utf-8", errors="replace")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("proctor.yaml", "suite.yaml")
    )
