"""The cost of starting: CPU of a whole process, against `python -c pass`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import msgspec
import typing_extensions
import yaml

import proctor as package
from benchmarks.measure import child_cpu_seconds
from benchmarks.report import Figure

SUITE = """\
proctor: 1
name: small
cases:
  - id: refund
    expect:
      - tool_called: {name: refund, arguments: {order: 17}}
      - tools_in_order: [lookup_order, refund]
      - response_contains: refund processed
"""
EVIDENCE = """\
{"case": "refund", "text": "Refund processed.", "tool_calls": [{"name": "lookup_order", "arguments": {"order": 17}},
 {"name": "refund", "arguments": {"order": 17}}]}
"""
LISTING = b"""\
{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
{"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
"""


def figures() -> Iterator[Figure]:
    """Ratios of CPU time."""
    proctor = str(Path(sys.executable).with_name("proctor"))
    # Compiled like installed packages, whatever the environment sets for byte code.
    for imported in (package, msgspec, yaml, typing_extensions):
        place = Path(str(imported.__file__))
        subprocess.run([sys.executable, "-m", "compileall", "-q", place.parent if place.name == "__init__.py" else place], check=True)
    bare = child_cpu_seconds([sys.executable, "-c", "pass"], 20)
    note = f"python -c pass: {bare * 1000:.1f} ms"
    yield Figure("proctor --version / python -c pass", child_cpu_seconds([proctor, "--version"], 20) / bare, at_most=2.5, note=note)
    yield Figure("import proctor / python -c pass", child_cpu_seconds([sys.executable, "-c", "import proctor"], 20) / bare, at_most=2.5)
    with tempfile.TemporaryDirectory() as folder:
        suite, evidence = Path(folder, "suite.yaml"), Path(folder, "evidence.json")
        suite.write_text(SUITE)
        evidence.write_text(EVIDENCE)
        command = [proctor, "check", str(suite), str(evidence)]
        with _set_environment("PROCTOR_SUITE_CACHE", "0"):
            spent = child_cpu_seconds(command)
        yield Figure("proctor check, three checks on one file / python -c pass", spent / bare, at_most=7.5, note=f"{spent * 1000:.0f} ms")
        with _set_environment("PROCTOR_SUITE_CACHE", "1"), _set_environment("XDG_CACHE_HOME", folder):
            spent = child_cpu_seconds(command)
        name = "proctor check, the same with a suite that was read before / python -c pass"
        yield Figure(name, spent / bare, at_most=5.75, note=f"{spent * 1000:.0f} ms")
        spent = child_cpu_seconds([proctor, "mcp", "--home", folder], 20, sent=LISTING, expected=b'"tools":')
        yield Figure("proctor mcp that lists its tools and ends / python -c pass", spent / bare, at_most=8.0, note=f"{spent * 1000:.0f} ms")


@contextlib.contextmanager
def _set_environment(name: str, value: str) -> Generator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
