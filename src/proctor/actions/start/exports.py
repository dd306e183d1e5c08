"""Finds what is no Python code: exports of n8n and Flowise, configurations of MCP servers, OpenAPI files, lists of dependencies."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from proctor.actions.start.files import list_files, read_json_of, read_text_of
from proctor.actions.start.found import FoundExport
from proctor.actions.start.frameworks import FRAMEWORKS
from proctor.actions.start.mcp_configs import find_mcp_configs
from proctor.actions.start.openapi_files import read_openapi, read_openapi_text
from proctor.actions.start.platforms import read_flowise, read_n8n

_REQUIREMENTS = ("pyproject.toml", "requirements.txt", "requirements.in", "requirements-dev.txt", "uv.lock", "Pipfile", "setup.cfg")


def find_exports(folder: Path) -> list[FoundExport]:
    """Return what is found, in the order in which it is likely to be meant."""
    found = find_mcp_configs(folder)
    for path in list_files(folder, (".json", ".yaml", ".yml")):
        name = path.relative_to(folder).as_posix()
        document = read_json_of(path) if path.suffix == ".json" else read_openapi_text(path)
        if isinstance(document, dict):
            found += [export for read in (read_n8n, read_flowise, read_openapi) if (export := read(document, name)) is not None]
    return found


def list_required(folder: Path) -> list[str]:
    """Return the frameworks that a list of requirements names."""
    text = "\n".join(read_text_of(folder / name) for name in _REQUIREMENTS).lower().replace("_", "-")
    return [
        framework.name
        for framework in FRAMEWORKS.values()
        if any(re.search(rf"(?<![\w-]){re.escape(package)}(?![\w-])", text) for package in framework.packages)
    ]


def read_package(folder: Path) -> dict[str, Any] | None:
    """Return what `package.json` says, where there is one."""
    document = read_json_of(folder / "package.json")
    return document if isinstance(document, dict) else None
