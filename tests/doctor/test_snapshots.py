"""A run stores what its servers offered, and a comparison names what changed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import msgspec

from proctor.actions.doctor.snapshots import SERVERS, describe_changes, list_snapshots, read_snapshot, store_snapshots
from proctor.actions.history.compare import compare
from proctor.cli.commands.compare import build_comparison
from proctor.model.run import RunEntry, RunHeader
from proctor.report.document.terminal import write_terminal
from proctor.store.files.run_files import RunFiles
from proctor.targets.mcp.results import Listing
from proctor.targets.mcp.servers import McpServers
from tests.doctor.servers import settings_of


class Offering:
    """A target with MCP servers."""

    def __init__(self, listings: tuple[Listing, ...]) -> None:
        self.listings = listings


def read_listings(*arguments: str) -> tuple[Listing, ...]:
    async def connect() -> tuple[Listing, ...]:
        async with McpServers([settings_of(*arguments)]) as servers:
            return servers.listings

    return asyncio.run(connect())


def test_a_changed_server_is_named_next_to_the_regression(tmp_path: Path) -> None:
    (good,) = read_listings()
    assert good.tools[0].output_schema is not None and good.tools[0].annotations["readOnlyHint"] is True
    (changed,) = read_listings("--defect", "parameter-choice")
    files = RunFiles(tmp_path)
    for name, listing, outcome in (("a", good, "pass"), ("b", changed, "fail")):
        folder = files.create(RunHeader(run_id=name, started_at="2026-01-01T00:00:00Z"), '{"proctor": 1, "cases": []}')
        asyncio.run(folder.append(RunEntry(case="where", outcome=outcome)))
        folder.close("completed")
        store_snapshots(folder.folder, Offering((listing,)))
    found = compare(tmp_path, "a", "b")
    line = "the server template changed: tool `find_order` has a new parameter `action`"
    assert found.server_changes == (line,)
    assert line in " ".join(write_terminal(build_comparison(found, "terminal")).split())


def test_runs_without_snapshots_and_equal_servers_have_no_changes(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    listing = Listing(server="shop", name="shop", tools=())
    store_snapshots(tmp_path / "a", Offering((listing,)))
    store_snapshots(tmp_path / "b", Offering((listing,)))
    store_snapshots(tmp_path / "c", Offering(()))
    assert not (tmp_path / "c/servers.json").exists()
    a, b, c = (read_snapshot(tmp_path / name, SERVERS) for name in "abc")
    assert a is not None and describe_changes(a, b) == () == describe_changes(a, c)


def test_servers_of_combined_targets_are_all_stored() -> None:
    parts = [Offering((Listing(server=name, name=name, tools=()),)) for name in ("shop", "stock")]
    together = SimpleNamespace(targets=[parts[0], SimpleNamespace(targets=[parts[1]])])
    assert set(msgspec.json.decode(list_snapshots(together)[SERVERS])) == {"shop", "stock"}
