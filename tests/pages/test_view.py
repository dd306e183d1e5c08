"""`proctor view`: the same screens over the runs of a folder, for whoever sits at the machine, and for nobody else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from proctor.model.run import RunEntry, RunHeader
from proctor.rest.view import make_view_app
from tests.pages.markup import Markup
from tests.pages.world import BAD, GOOD, SUITE, decide_all

RUNS = "/ui/p/local/runs"


def keep(home: Path, id: str, entries: list[RunEntry], *, ended: str | None = "completed", planned: int | None = None) -> None:
    """A run as `proctor run` leaves it."""
    folder = home / "runs" / id
    folder.mkdir(parents=True)
    header = RunHeader(run_id=id, started_at=f"{id[:4]}-{id[4:6]}-{id[6:8]}T09:00:00Z", suite_name="shop", target="app", planned=planned)
    (folder / "run.json").write_bytes(msgspec.json.encode(header))
    (folder / "suite.yaml").write_text(SUITE, encoding="utf-8")
    (folder / "results.jsonl").write_bytes(b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries))
    if ended is not None:
        (folder / "ended.json").write_text(json.dumps({"ended": ended}), encoding="utf-8")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("shop") / ".proctor"
    keep(home, "20261115-090000-a", decide_all(GOOD), planned=3)
    keep(home, "20261116-090000-b", decide_all(BAD), planned=3)
    keep(home, "20261116-100000-c", decide_all(GOOD)[:2], ended="interrupted", planned=3)
    keep(home, "20261116-110000-d", [])
    (home / "runs/20261116-110000-d/results.jsonl").write_text("no json\n", encoding="utf-8")
    return TestClient(make_view_app(home), base_url="http://127.0.0.1:8000", raise_server_exceptions=False)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/ui/", ["Latest runs", "shop"]),
        (RUNS, ["Tick two to 6 runs.", "failed", "passed", "cancelled", "broken off"]),
        (f"{RUNS}/20261116-090000-b", ["2 failed", "What went wrong", "2 reasons", "Compare with the run before"]),
        (f"{RUNS}/20261116-090000-b?q=DO+not+know", ["opening-hours"]),
        (f"{RUNS}/20261116-090000-b?q=nowhere+at+all", ["No attempt is like this."]),
        (f"{RUNS}/20261116-100000-c", ["cancelled", "Incomplete: 2 of 3 attempts"]),
        (f"{RUNS}/20261116-090000-b/r/0", ["refund-twice", "order 71 was paid once"]),
        ("/ui/p/local/compare?runs=20261115-090000-a,20261116-090000-b", ["Newly failing 2", "opening-hours"]),
        (
            "/ui/p/local/compare?runs=20261115-090000-a,20261116-090000-b,20261116-100000-c",
            ["3 runs of", "is incomplete"],
        ),
        ("/ui/p/local/compare/answers?runs=20261115-090000-a,20261116-090000-b&case=opening-hours", ["I do not know.", "Attempt 1"]),
    ],
)
def test_a_screen_shows_what_the_folder_has(client: TestClient, path: str, says: list[str]) -> None:
    answer = client.get(path)
    page = Markup(answer.text)
    assert answer.status_code == 200 and page.strange == []
    for sentence in says:
        assert sentence in page.words, page.words
    assert "Log out" not in page.words and "/api/" not in answer.text


def test_a_run_that_cannot_be_read_says_why(client: TestClient) -> None:
    answer = client.get(f"{RUNS}/20261116-110000-d")
    assert answer.status_code == 400 and "broken entry" in answer.text


@pytest.mark.parametrize(
    "path", [f"{RUNS}/nothing", f"{RUNS}/latest", f"{RUNS}/..%2F..%2Fetc", f"{RUNS}/20261116-090000-b/r/99", "/ui/p/other", "/ui/login"]
)
def test_what_is_not_there_is_not_found(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404 and "There is nothing here" in answer.text


def test_only_this_machine_under_its_own_name_is_answered(client: TestClient) -> None:
    assert client.get("/ui/", headers={"host": "evil.example"}).status_code == 403
    assert client.get("/ui/", headers={"origin": "https://evil.example"}).status_code == 403


def test_nothing_can_be_changed(client: TestClient) -> None:
    answer = client.post(f"{RUNS}/20261116-090000-b/cancel", data={"proof": "x"})
    assert answer.status_code == 403
