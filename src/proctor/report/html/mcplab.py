"""MCPLab's `report.html`: the scenarios of a run on one page that loads nothing.

What the original shows: about the run, tiles, a table that can be narrowed to what passed, failed or did both, and for every scenario the
sequences of tools, how often required and forbidden ones were used, captured values and the last answer. Everything that was written by
others is escaped.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from typing import Final

from proctor.model.evidence import Json
from proctor.report.html.page import page, read_template

_MOST_TEXT: Final = 20_000
"""Characters of one answer."""


def report_page(results: Mapping[str, Json]) -> str:
    """Return the page of a `results.json`."""
    metadata, summary, scenarios = results["metadata"], results["summary"], results["scenarios"]
    body = "\n".join(
        (
            "<main>",
            "<h1>MCPLab run report</h1>",
            _render_about(metadata),
            _render_tiles(summary),
            _render_buttons(),
            _render_table(scenarios),
            *(_render_details(number, row) for number, row in enumerate(scenarios)),
            "</main>",
            f"<script>{read_template('mcplab.js')}</script>",
            "",
        )
    )
    # The policy allows the script by its hash, so the very same text goes into the page and into the policy.
    title = f"MCPLab run {_escape_text(metadata['run_id'])}"
    return page(title=title, style=read_template("mcplab.css"), body=body, script=read_template("mcplab.js"))


def _render_about(metadata: Mapping[str, Json]) -> str:
    rows: list[tuple[str, str]] = [("Run ID", metadata["run_id"]), ("Timestamp", metadata["timestamp"])]
    if "run_note" in metadata:
        rows.append(("Run note", metadata["run_note"]))
    rows += [("Config hash", metadata["config_hash"]), ("CLI version", metadata["cli_version"])]
    rows += [(f"MCP server {server}", version or "unknown") for server, version in metadata["mcp_server_versions"].items()]
    return "<dl>" + "".join(f"<dt>{_escape_text(name)}</dt><dd>{_escape_text(value)}</dd>" for name, value in rows) + "</dl>"


def _render_tiles(summary: Mapping[str, Json]) -> str:
    latency = summary["avg_tool_latency_ms"]
    tiles = (
        ("Scenarios", summary["total_scenarios"]),
        ("Runs", summary["total_runs"]),
        ("Pass rate", _write_percent(summary["pass_rate"])),
        ("Tool calls per run", f"{summary['avg_tool_calls_per_run']:.2f}"),
        ("Tool latency", "none" if latency is None else f"{latency:.0f} ms"),
    )
    return '<ul class="tiles">' + "".join(f"<li><b>{_escape_text(value)}</b> {_escape_text(name)}</li>" for name, value in tiles) + "</ul>"


def _render_buttons() -> str:
    words = ("all", "pass", "fail", "mixed")
    return '<p class="filters">' + "".join(f'<button type="button" data-show="{word}">{word}</button>' for word in words) + "</p>"


def _render_table(scenarios: Iterable[Mapping[str, Json]]) -> str:
    names = ("Scenario", "Agent", "Runs", "Pass rate", "Distinct sequences", "Tool calls")
    head = "".join(f"<th>{name}</th>" for name in names)
    rows: list[str] = []
    for number, row in enumerate(scenarios):
        counts = (
            len(row["runs"]),
            _write_percent(row["pass_rate"]),
            len(row["distinct_sequences"]),
            sum(row["tool_usage_frequency"].values()),
        )
        cells = "".join(f"<td>{_escape_text(cell)}</td>" for cell in (row["agent"], *counts))
        rows.append(
            f'<tr data-state="{_find_state(row)}"><td><a href="#scenario-{number}">{_escape_text(row["scenario_id"])}</a></td>{cells}</tr>'
        )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _render_details(number: int, row: Mapping[str, Json]) -> str:
    runs = len(row["runs"])
    name = f" · {_escape_text(row['scenario_name'])}" if "scenario_name" in row else ""
    parts = [
        f'<section id="scenario-{number}" data-state="{_find_state(row)}">'
        f"<h2>{_escape_text(row['scenario_id'])}{name} · {_escape_text(row['agent'])}</h2>"
    ]
    parts.append(_render_counts("Distinct sequences", row["distinct_sequences"]))
    for kind, used in row.get("tool_constraints_stats", {}).items():
        parts.append(_render_counts(f"{kind.capitalize()} tools", {tool: f"{count}/{runs}" for tool, count in used.items()}))
    parts.append(_render_counts("Tool calls", row["tool_usage_frequency"]))
    parts += [_render_counts(f"Captured {value}", seen) for value, seen in row["extracted_values"].items()]
    parts.append(f"<h3>Last answer</h3><pre>{_escape_text(row['last_final_answer'])}</pre></section>")
    return "".join(parts)


def _render_counts(title: str, counts: Mapping[str, Json]) -> str:
    if not counts:
        return ""
    rows = "".join(f"<li><code>{_escape_text(name)}</code> {_escape_text(count)}</li>" for name, count in counts.items())
    return f"<h3>{_escape_text(title)}</h3><ul>{rows}</ul>"


def _find_state(row: Mapping[str, Json]) -> str:
    """Return whether every attempt passed, none, or some."""
    return "pass" if row["pass_rate"] == 1 else "fail" if row["pass_rate"] == 0 else "mixed"


def _write_percent(share: float) -> str:
    return f"{share * 100:.1f}%"


def _escape_text(value: Json) -> str:
    text = str(value)
    return html.escape(text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + "...")
