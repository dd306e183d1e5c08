"""`proctor keys` and `proctor db`, as a person uses them."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.cli.main import run
from proctor.service.access.callers import Caller
from proctor.service.access.keys import authenticate, find_local_caller
from proctor.service.access.secrets import read_secrets, set_secret
from proctor.service.hub import Hub
from proctor.store.sql.database import Database
from proctor.store.sql.migrations import NOTES, STEPS
from proctor.store.sql.tables import agents, projects
from tests.databases import TestDatabase


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PROCTOR_DATABASE_URL", "PROCTOR_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)


class CommandOutput:
    """The output of a command."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str, code: int = 0) -> str:
        self._capsys.readouterr()
        got = run(list(words))
        self.out, self.err = self._capsys.readouterr()
        assert got == code, self.err
        return self.out


@pytest.fixture
def proctor(capsys: pytest.CaptureFixture[str]) -> CommandOutput:
    return CommandOutput(capsys)


async def fill(hub: Hub) -> None:
    ours = {"organization_id": "org_default", "name": "n", "created_at": "t", "updated_at": "t"}
    async with hub.database.writing() as connection:
        await connection.execute(projects.insert().values(id="proj_1", **ours))
        await connection.execute(agents.insert().values(id="agent_1", project_id="proj_1", kind="http", **ours))


def test_a_key_is_created_used_listed_and_revoked(database: TestDatabase, proctor: CommandOutput) -> None:
    where = ("--database", database.url)
    database.run_hub(fill)
    plain = proctor("keys", "create", "--kind", "organization", "--name", "ci", *where).strip()
    assert plain.startswith("proctor_org_") and plain not in proctor.err and "shown only once" in proctor.err
    scoped = json.loads(
        proctor("keys", "create", "--kind", "project", "--project", "proj_1", "--agent", "agent_1", "--format", "json", *where)
    )
    assert scoped["key"].startswith("proctor_proj_") and scoped["agent_ids"] == ["agent_1"] and "hash" not in scoped
    caller = database.run_hub(lambda hub: authenticate(hub, plain))
    assert caller is not None and caller.kind == "organization"
    listed = proctor("keys", "list", *where)
    assert plain not in listed and f"proctor_org_...{plain[-4:]}" in listed and "proj_1 agent_1" in listed
    assert len(json.loads(proctor("keys", "list", "--kind", "project", "--format", "json", *where))) == 1
    assert caller.key_id is not None
    assert "revoked since" in proctor("keys", "revoke", caller.key_id, *where)
    assert database.run_hub(lambda hub: authenticate(hub, plain)) is None
    assert database.run_hub(find_local_caller) is None
    assert "[revoked " in proctor("keys", "list", *where)


def test_a_project_key_alone_leaves_the_service_open_with_a_warning(database: TestDatabase, proctor: CommandOutput) -> None:
    where = ("--database", database.url)
    database.run_hub(fill)
    proctor("keys", "create", "--kind", "project", "--project", "proj_1", *where)
    assert "stays open" in proctor.err and "proctor keys create --kind organization" in proctor.err
    assert database.run_hub(find_local_caller) is not None
    proctor("keys", "create", "--kind", "organization", *where)
    assert "stays open" not in proctor.err
    proctor("keys", "create", "--kind", "project", "--project", "proj_1", *where)
    assert "stays open" not in proctor.err


def test_organizations_are_apart(database: TestDatabase, proctor: CommandOutput) -> None:
    where = ("--database", database.url)
    first = proctor("keys", "create", "--kind", "organization", "--organization", "acme", *where).strip()
    second = proctor("keys", "create", "--kind", "organization", "--organization", "acme", *where).strip()
    callers = [database.run_hub(lambda hub, key=key: authenticate(hub, key)) for key in (first, second)]
    assert all(callers) and callers[0].organization_id == callers[1].organization_id != "org_default"  # type: ignore[union-attr]
    assert proctor("keys", "list", *where) == "" and "no keys" in proctor.err
    assert len(proctor("keys", "list", "--organization", "acme", *where).splitlines()) == 2
    proctor("keys", "list", "--organization", "nobody", *where, code=4)
    assert "there is no organization 'nobody'" in proctor.err


USAGE = [
    (("keys",), "required: VERB"),
    (("keys", "creat"), "nearest: create"),
    (("keys", "create"), "create needs --kind"),
    (("keys", "create", "--kind", "king"), "invalid choice: 'king'"),
    (("keys", "create", "key_1", "--kind", "organization"), "unrecognized arguments: key_1"),
    (("keys", "revoke"), "revoke needs the id"),
    (("keys", "revoke", "key_1"), "there is no key 'key_1'"),
    (("keys", "create", "--kind", "project"), "a project key needs --project"),
    (("keys", "create", "--kind", "solver"), "a solver key needs --solver"),
    (("keys", "create", "--kind", "run"), "a run key needs --benchmark-run"),
    (("keys", "create", "--kind", "project", "--project", "nope"), "there is no project 'nope'"),
    (("keys", "create", "--kind", "organization", "--expires", "soon"), "expires_at: expected a time"),
    (("keys", "list", "--database", "mysql://u:hunter2@h/x"), "'mysql' are not supported"),
    (("db",), "required: VERB"),
    (("db", "export"), "export needs a FILE"),
    (("db", "import"), "import needs a FILE"),
    (("db", "status", "x"), "unrecognized arguments: x"),
    (("db", "export", "x", "--merge"), "--merge is for import"),
    (("db", "import", "nothing.jsonl"), "nothing.jsonl"),
    (("db", "status", "--database", "nothing.db"), "there is no database at 'nothing.db'"),
    (("db", "export", "no/such/folder/x.jsonl"), "cannot write"),
]


@pytest.mark.parametrize(("words", "message"), USAGE, ids=[" ".join(words) for words, _ in USAGE])
def test_impossible_commands_are_explained(words: tuple[str, ...], message: str, proctor: CommandOutput) -> None:
    assert proctor(*words, code=4) == ""
    assert message in proctor.err and "hunter2" not in proctor.err and "Traceback" not in proctor.err


def test_the_database_is_in_the_workspace_by_default(tmp_path: Path, proctor: CommandOutput, monkeypatch: pytest.MonkeyPatch) -> None:
    proctor("db", "migrate")
    assert (tmp_path / ".proctor" / "proctor.db").is_file()
    monkeypatch.setenv("PROCTOR_DATABASE_URL", f"sqlite:///{tmp_path / 'named.db'}")
    assert STEPS[-1][0] in proctor("db", "migrate")
    assert (tmp_path / "named.db").is_file()
    proctor("db", "migrate", "--database", "flag.db")
    assert (tmp_path / "flag.db").is_file()


def test_a_workspace_moves_between_databases(
    database: TestDatabase, proctor: CommandOutput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run_hub(fill)
    plain = proctor("keys", "create", "--kind", "organization", "--database", database.url).strip()
    proctor("db", "export", "copy.jsonl", "--database", database.url)
    assert stat.S_IMODE((tmp_path / "copy.jsonl").stat().st_mode) == 0o600
    proctor("db", "import", "copy.jsonl", "--database", "moved.db")
    assert "added 6 rows" in proctor.err
    proctor("db", "import", "copy.jsonl", "--database", "moved.db", code=4)
    assert "--merge" in proctor.err
    proctor("db", "import", "copy.jsonl", "--database", "moved.db", "--merge")
    assert "added 0 rows; 6 were there already" in proctor.err
    first = proctor("db", "export", "-", "--database", "moved.db").splitlines()[1:]
    assert first == (tmp_path / "copy.jsonl").read_text().splitlines()[1:]
    assert TestDatabase(str(tmp_path / "moved.db"), tmp_path).run_hub(lambda hub: authenticate(hub, plain)) is not None
    with (tmp_path / "copy.jsonl").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        proctor("db", "import", "-", "--database", "piped.db")
    assert "added 6 rows" in proctor.err


def test_status_changes_nothing(empty_database_url: str, proctor: CommandOutput, tmp_path: Path) -> None:
    database = TestDatabase(empty_database_url, tmp_path)
    where = ("--database", database.url)
    if database.is_postgres:
        output = proctor("db", "status", *where)
    else:
        proctor("db", "status", *where, code=4)
        (tmp_path / "proctor.db").touch()
        output = proctor("db", "status", *where)
    assert "schema: none yet" in output and "pending: 0001_first_tables" in output
    proctor("keys", "create", "--kind", "organization", *where)
    output = proctor("db", "status", *where)
    assert f"schema: {STEPS[-1][0]}" in output and "pending" not in output and "keys             1" in output
    status: dict[str, Any] = json.loads(proctor("db", "status", "--format", "json", *where))
    assert status["rows"]["keys"] == 1 and status["bytes"] > 10_000

    async def newer(opened: Database) -> None:
        async with opened.writing() as connection:
            await connection.execute(NOTES.insert().values(name="9999_new", applied_at="t"))

    database.run(newer)
    assert "9999_new, of a newer proctor" in proctor("db", "status", *where, code=4)
    for words in (("db", "migrate"), ("keys", "list"), ("db", "export", "x.jsonl")):
        proctor(*words, *where, code=4)
        assert "newer proctor" in proctor.err
    assert not (tmp_path / "x.jsonl").exists()


def test_secrets_are_locked_again_with_a_new_key(proctor: CommandOutput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = TestDatabase(str(tmp_path / ".proctor" / "proctor.db"), tmp_path / ".proctor")

    async def keep(hub: Hub) -> None:
        await fill(hub)
        await set_secret(hub, Caller(organization_id="org_default"), "proj_1", "A", "hunter2")

    place.run_hub(keep)
    old = (tmp_path / ".proctor" / "secret.key").read_text().strip()
    monkeypatch.setenv("PROCTOR_SECRET_KEY", f"a completely new passphrase,{old}")
    assert "re-encrypted 1 secrets" in proctor("db", "rekey")
    monkeypatch.setenv("PROCTOR_SECRET_KEY", old)
    proctor("db", "rekey", code=4)
    assert "cannot be decrypted" in proctor.err and "hunter2" not in proctor.err
    with pytest.raises(Exception, match="cannot be decrypted"):
        place.run_hub(lambda hub: read_secrets(hub, "org_default", "proj_1"))


@pytest.mark.parametrize("module", ["sqlalchemy", "aiosqlite"])
@pytest.mark.timeout(60)
def test_without_the_optional_part_the_install_command_is_shown(module: str, tmp_path: Path) -> None:
    # In its own process: loading modules twice in this one would duplicate them.
    script = f"import sys; sys.modules[{module!r}] = None; from proctor.cli.main import run; sys.exit(run(['db', 'migrate']))"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 4 and "pip install 'proctor-evals[serve]'" in done.stderr, done.stderr
