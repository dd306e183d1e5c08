"""Files over SFTP, by the client of the library that serves them; clients of others are in `tests/live/clients/test_sftp_clients.py`."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import MissingExtra
from proctor.model.case import System, list_variables
from proctor.sandboxes.server import LoopbackServer, SandboxAddress
from proctor.simulators.rows import MemoryStore
from proctor.simulators.sandbox import Sandbox, provision_rows
from tests.simulators.workplace import make_surroundings

asyncssh = pytest.importorskip("asyncssh")
sftp = pytest.importorskip("proctor.sandboxes.sftp")
sftp = pytest.importorskip("proctor.sandboxes.sftp")


class Serving:
    """One drop on loopback."""

    def __init__(self) -> None:
        seed = {"sftp": True, "inbox/referral.json": {"id": 17}, "archive/2025/old.txt": "old"}
        self.systems = (System(name="drop", kind="files", seed=seed),)
        around = make_surroundings()
        self.server = LoopbackServer()
        self.server.open()
        self.sandbox = Sandbox("s1", self.systems, MemoryStore(), around)
        asyncio.run(self.sandbox.provision(provision_rows(self.systems, around)))
        self.place: SandboxAddress = self.server.add(self.sandbox, ("drop",), sftp=("drop",))

    @asynccontextmanager
    async def connect(self, password: str | None = None) -> AsyncIterator[Any]:
        """A session of SFTP."""
        host, _, port = self.place.find_variables(("drop",))["drop_sftp"].partition(":")
        word = self.place.token if password is None else password
        async with (
            asyncssh.connect(host, int(port), username="agent", password=word, known_hosts=None, config=None, client_keys=None) as ssh,
            ssh.start_sftp_client() as client,
        ):
            yield client

    async def list_events(self) -> list[tuple[str, str, int | None]]:
        return [(one.method, one.path, one.status) for one in (await self.sandbox.read_state()).requests or ()]


@pytest.fixture
def serving() -> Iterator[Serving]:
    served = Serving()
    yield served
    served.server.close()


async def test_files_are_written_read_renamed_and_removed(serving: Serving) -> None:
    assert tuple(serving.place.find_variables(("drop",))) == list_variables(serving.systems)
    async with serving.connect() as client:
        async with client.open("outbox/a b.part", "wb") as file:
            await file.write("grüß".encode())
        await client.rename("outbox/a b.part", "outbox/a b.txt")
        async with client.open("outbox/a b.txt", "ab") as file:
            await file.write(b"!")
        async with client.open("/outbox/a b.txt", "rb") as file:
            assert await file.read() == "grüß!".encode()
        await client.remove("inbox/referral.json")
        assert sorted(await client.listdir("/")) == [".", "..", "archive", "inbox", "outbox"]
    state = await serving.sandbox.read_state()
    assert [(one.path, one.content) for one in state.files or ()] == [("archive/2025/old.txt", "old"), ("outbox/a b.txt", "grüß!")]
    assert await serving.list_events() == [
        ("PUT", "/outbox/a%20b.part", 201),
        ("MOVE", "/outbox/a%20b.part?to=outbox/a%20b.txt", 201),
        ("PUT", "/outbox/a%20b.txt", 204),
        ("GET", "/outbox/a%20b.txt", 200),
        ("DELETE", "/inbox/referral.json", 204),
        ("GET", "/", 200),
    ]


async def test_folders_are_created_with_files_or_alone(serving: Serving) -> None:
    async with serving.connect() as client:
        assert await client.isdir("archive/2025") and await client.isfile("inbox/referral.json")
        assert (await client.stat("inbox/referral.json")).size == 9
        await client.makedirs("outbox/new")
        assert await client.listdir("outbox/new") == [".", ".."]
        for refused in (client.mkdir("outbox"), client.rmdir("outbox"), client.rmdir("inbox"), client.rename("archive", "old")):
            with pytest.raises(asyncssh.SFTPError):
                await refused
        await client.rmdir("outbox/new")
        assert not await client.exists("outbox/new") and await client.exists("outbox")
        await client.remove("archive/2025/old.txt")
        assert await client.isdir("archive/2025"), "the folder of the last file stays"
    assert [one.path for one in (await serving.sandbox.read_state()).files or ()] == ["inbox/referral.json"]


@pytest.mark.parametrize("path", ["../../etc/passwd", "/../etc/passwd", "inbox/../../x", "..", "/../"])
async def test_a_path_that_leaves_the_drop_is_refused_and_an_event(serving: Serving, path: str) -> None:
    async with serving.connect() as client:
        for work in (
            lambda: client.open(path, "rb"),
            lambda: client.open(path, "wb"),
            lambda: client.remove(path),
            lambda: client.stat(path),
        ):
            # The client resolves paths itself if it has a folder; these are sent unchanged.
            with pytest.raises(asyncssh.SFTPPermissionDenied, match="inside the drop"):
                await work()
        assert await client.realpath("../..") == "/"
    events = await serving.list_events()
    assert [(method, status) for method, _, status in events] == [("GET", 400)] * 4
    assert (await serving.sandbox.read_state()).changes == ()


async def test_links_commands_and_forwarding_are_refused(serving: Serving, tmp_path: Path) -> None:
    host, _, port = serving.place.find_variables(("drop",))["drop_sftp"].partition(":")
    async with serving.connect() as client:
        for work in (client.symlink("/etc/passwd", "inbox/link"), client.link("inbox/referral.json", "b"), client.readlink("inbox")):
            with pytest.raises(asyncssh.SFTPOpUnsupported):
                await work
        with pytest.raises(asyncssh.SFTPNoSuchFile):
            await client.open(str(tmp_path.parent), "rb")
    async with asyncssh.connect(host, int(port), username="x", password=serving.place.token, known_hosts=None, config=None) as ssh:
        with pytest.raises(asyncssh.ChannelOpenError):
            await ssh.run("id")
        with pytest.raises(asyncssh.ChannelOpenError):
            await ssh.open_connection("127.0.0.1", int(port))


@pytest.mark.parametrize("password", ["", "guess"])
async def test_a_wrong_password_is_refused(serving: Serving, password: str) -> None:
    with pytest.raises(asyncssh.PermissionDenied):
        async with serving.connect(password):
            pass
    assert await serving.list_events() == []


async def test_limits_are_reported_and_nothing_beyond_them_is_stored(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sftp, "MOST_BYTES", 10)
    monkeypatch.setattr("proctor.simulators.kinds.files.MOST_BYTES", 10)
    monkeypatch.setattr(sftp, "MOST_BUFFERED", 25)
    monkeypatch.setattr(sftp, "MOST_FILES", 3)
    async with serving.connect() as client:
        file = await client.open("big", "wb")
        with pytest.raises(asyncssh.SFTPFailure, match="at most 10 bytes"):
            await file.write(b"x", 1 << 40)
        with pytest.raises(asyncssh.SFTPFailure, match="at most 10 bytes"):
            await file.close()
        opened = [await client.open(name, "wb") for name in "abc"]
        with pytest.raises(asyncssh.SFTPFailure, match="at most 3 files"):
            await client.open("d", "wb")
        for file in opened[:2]:
            await file.write(b"0123456789")
        with pytest.raises(asyncssh.SFTPFailure, match="25 bytes together"):
            await opened[2].write(b"0123456789")
        for file in opened:
            await file.close()
    state = await serving.sandbox.read_state()
    assert [one.path for one in state.files or ()] == ["inbox/referral.json", "archive/2025/old.txt", "a", "b", "c"]
    assert ("PUT", "/big", 413) in await serving.list_events()


async def test_clients_that_never_sign_in_block_no_one(serving: Serving) -> None:
    host, _, port = serving.place.find_variables(("drop",))["drop_sftp"].partition(":")
    silent = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
    try:
        for reader, _ in silent:
            assert (await reader.readline()).startswith(b"SSH-2.0"), "the server knows of the connection"
        async with serving.connect() as client:
            assert await client.exists("inbox")
    finally:
        for _, writer in silent:
            writer.close()


async def test_an_interrupted_upload_keeps_the_received_part(serving: Serving) -> None:
    async with serving.connect() as client:
        file = await client.open("half", "wb")
        await file.write(b"half")
    for _ in range(100):
        if ("PUT", "/half", 201) in await serving.list_events():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the file is not there")


async def test_nothing_is_reachable_or_stored_after_the_end(serving: Serving) -> None:
    before = threading.active_count()
    async with serving.connect() as client:
        file = await client.open("late", "wb")
        await file.write(b"late")
        await asyncio.to_thread(serving.server.remove, serving.sandbox)
        with pytest.raises((asyncssh.SFTPError, OSError)):
            await client.stat("inbox")
    with pytest.raises(OSError):
        async with serving.connect():
            pass
    assert (await serving.sandbox.read_state()).changes == ()
    assert serving.sandbox.list_unplayed() == ("the file 'late' was still being written to drop when the agent was done",)
    assert not [one.name for one in threading.enumerate() if "sftp" in one.name] and threading.active_count() <= before


def test_no_method_of_the_library_reaches_the_disk() -> None:
    """New methods of a later library version must be reviewed first."""
    harmless = {"channel", "connection", "convert_attrs", "env", "exit", "format_longname", "lock", "logger", "unlock"}
    base = {name for name, _ in inspect.getmembers(asyncssh.SFTPServer) if not name.startswith("_")}
    own = {name for name in vars(sftp._Session) if not name.startswith("_")}
    assert base - own == harmless


def test_without_the_library_the_extra_is_named(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "proctor.sandboxes.sftp", None)
    with pytest.raises(MissingExtra, match=r"proctor-evals\[sftp\]"):
        serving.server.add(serving.sandbox, ("drop",), sftp=("drop",))
