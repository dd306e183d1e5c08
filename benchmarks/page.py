"""Writes the figures of one run as a page of the docs: each next to its bound, and those of other tools first."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.report import Figure

_PEERS = ("pydantic-evals", "inspect_ai", "promptfoo", "Phoenix", "Inspect", "medplum", "Dask", "viewers: ", "ten tasks: ")
"""Parts of the names of figures that compare with another tool."""
_PACKAGES = ("proctor-evals", "pydantic-evals", "inspect-ai", "dask", "msgspec")


def write_page(parts: Mapping[str, Sequence[Figure]], load: Sequence[float], *, is_whole: bool = True) -> str:
    """Return the page. `parts` are the figures by what was measured; `load` is the load of the machine before and after."""
    everything = [figure for figures in parts.values() for figure in figures]
    lines = [
        "<!-- Written by `make bench-peers`. Do not edit. -->",
        "",
        "# Benchmarks",
        "",
        "Every figure here was measured in one run on one machine. Most are ratios, which differ less from machine to machine than times.",
        *([] if is_whole else ["Only the parts below were measured in this run."]),
        "A bound that is missed makes `make bench` fail.",
        "",
        f"Machine: {_describe_machine()}. Load of the machine before and after: {load[0]:.1f} and {load[-1]:.1f}.",
        f"Versions: {', '.join(_list_versions())}.",
        "",
        "## Next to other tools",
        "",
        *_write_table(figure for figure in everything if _names_peer(figure)),
        "",
        "## All figures",
    ]
    for title, figures in parts.items():
        own = [figure for figure in figures if not _names_peer(figure)]
        if own:
            lines += ["", f"### {title}", "", *_write_table(own)]
    return "\n".join(lines) + "\n"


def _names_peer(figure: Figure) -> bool:
    return any(peer in figure.name for peer in _PEERS)


def _write_table(figures: Iterable[Figure]) -> list[str]:
    rows = ["| figure | measured | bound | details |", "|---|---|---|---|"]
    for figure in figures:
        bound = f"at most {figure.at_most:g}" if figure.at_most is not None else ""
        bound = f"at least {figure.at_least:g}" if figure.at_least is not None else bound
        rows.append(f"| {figure.name} | {figure.value:,.2f} | {bound} | {figure.note.replace('|', '/')} |")
    return rows


def _describe_machine() -> str:
    model = platform.machine()
    cpus = Path("/proc/cpuinfo")
    if cpus.is_file():
        named = [line.partition(":")[2].strip() for line in cpus.read_text().splitlines() if line.startswith("model name")]
        model = named[0] if named else model
    return f"{os.cpu_count()} cores ({model}), {platform.system()}, Python {platform.python_version()}"


def _list_versions() -> list[str]:
    found: list[str] = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return found
