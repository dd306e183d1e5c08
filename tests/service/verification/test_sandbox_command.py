"""`proctor sandbox`, as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proctor.cli.main import run
from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub
from proctor.service.verification.authoring.environments import add_simulator, create_environment, create_simulator
from proctor.service.verification.sandboxes.requests import answer_request, find_sandbox
from proctor.simulators.exchange import Request
from tests.databases import TestDatabase


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROCTOR_DATABASE_URL", raising=False)


def test_a_system_is_made_looked_at_and_ended(database: TestDatabase, capsys: pytest.CaptureFixture[str]) -> None:
    def proctor(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert run(["sandbox", *words, "--database", database.url]) == code
        out, err = capsys.readouterr()
        return out if code == 0 else err

    Path("seed.json").write_text(json.dumps({"orders": [{"id": 1, "status": "open"}]}), encoding="utf-8")
    made = json.loads(proctor("up", "records", "--seed", "seed.json", "--format", "json"))
    id = made["id"]
    assert made["credentials"]["token"].startswith("vrl_sbx_")
    assert proctor("events", id) == "nothing has happened\n" and proctor("diff", id) == "nothing differs from how it began\n"

    async def work(hub: Hub) -> None:
        for method, path, body in (("PATCH", "/orders/1", b'{"status": "paid"}'), ("POST", "/orders", b'{"id": 2}'), ("GET", "/x", b"")):
            head = await find_sandbox(hub, LOCAL, id, "records", path)
            await answer_request(hub, head, Request(method=method, path=path, body=body))

    database.run_hub(work)
    assert [line.split("Z", 1)[1].split() for line in proctor("events", id).splitlines()] == [
        ["200", "PATCH", "/orders/1"],
        ["201", "POST", "/orders"],
        ["404", "GET", "/x"],
    ]
    assert proctor("diff", id) == "+ orders/2\n~ orders/1\n"
    shown = [f"{id}  active", f"  records_url  /sandboxes/{id}/records", f"  mcp_url  /sandboxes/{id}/mcp"]
    assert proctor("show", id).splitlines() == shown
    assert proctor("down", id) == f"{id}  teardown\n"
    assert proctor("diff", id) == "+ orders/2\n~ orders/1\n"
    assert "already been torn down" in proctor("down", id, code=4)
    assert proctor("up", "recods", code=4).count("nearest: Records") == 1
    assert "no sandbox" in proctor("show", "sb_none", code=4)


def test_a_playground_is_looked_at_as_a_whole(database: TestDatabase, capsys: pytest.CaptureFixture[str]) -> None:
    def proctor(*words: str) -> str:
        capsys.readouterr()
        assert run(["sandbox", *words, "--database", database.url]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    async def author(hub: Hub) -> str:
        made = await create_environment(hub, LOCAL, {"name": "shop"})
        for type in ("Records", "Files"):
            config = {"seed": {"orders": []}} if type == "Records" else None
            simulator = await create_simulator(hub, LOCAL, {"name": type, "type": type, "config": config})
            await add_simulator(hub, LOCAL, made["id"], simulator["id"])
        return made["id"]

    made = json.loads(proctor("up", database.run_hub(author), "--format", "json"))
    id = made["id"]
    assert proctor("events", id) == "nothing has happened\n" and proctor("diff", id) == "nothing differs from how it began\n"

    async def work(hub: Hub) -> None:
        kinds = {sandbox["type"].lower(): sandbox["id"] for sandbox in made["sandboxes"]}
        for kind, method, path in (("files", "PUT", "/a.txt"), ("records", "POST", "/orders"), ("files", "PUT", "/b.txt")):
            head = await find_sandbox(hub, LOCAL, kinds[kind], kind, path)
            await answer_request(hub, head, Request(method=method, path=path, body=b'{"id": 7}'))

    database.run_hub(work)
    assert [line.split("Z", 1)[1].split() for line in proctor("events", id).splitlines()] == [
        ["files", "201", "PUT", "/a.txt"],
        ["records", "201", "POST", "/orders"],
        ["files", "201", "PUT", "/b.txt"],
    ]
    assert sorted(proctor("diff", id).splitlines()) == ["+ files/a.txt", "+ files/b.txt", "+ records/orders/7"]
    proctor("down", id)
    assert len(proctor("diff", id).splitlines()) == 3, "what happened stays"


@pytest.mark.parametrize(
    ("words", "message"), [(("up", "env_1", "--seed", "x"), "--seed"), (("up", "fhir", "--seed", "none.json"), "none.json")]
)
def test_contradictory_options_are_refused(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sandbox", *words]) == 4
    assert message in capsys.readouterr().err
