"""A PostgreSQL server of our own for the tests: made in a temporary folder, on loopback, gone afterwards.

It needs only the server's programs (`/usr/lib/postgresql/*/bin`, or on the path). The server refuses to run as root, so root
steps down to another user for it. It ends with the process that started it, also when that is killed.

    with Cluster() as cluster:
        url = cluster.new_database()

`stop`, `start` and `kill` are for tests of what happens when it goes away. By default nothing is forced to disk, which is faster; a test of
durability uses `Cluster(fsync=True)`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

import asyncpg

from tests.foreign import install_once

USER = "proctor"
_CACHE = Path(__file__).parents[1] / ".pytest_cache" / "d" / "live-postgres"
_INITDB = ("-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "--wal-segsize=1")


def programs() -> Path | None:
    """The folder with `initdb` and `postgres`, of the newest version that is installed."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True):
        if (folder / "initdb").exists():
            return folder
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


class Cluster:
    """One server and its files."""

    def __init__(self, *, fsync: bool = False) -> None:
        folder = programs()
        assert folder is not None, "PostgreSQL is not installed"
        self._programs = folder
        self._fsync = fsync
        self._user = _other_user() if os.getuid() == 0 else None
        self._home = Path(tempfile.mkdtemp(prefix="proctor-pg-", dir="/tmp"))
        self._server: subprocess.Popen[bytes] | None = None
        self.port = _free_port()

    def __enter__(self) -> Cluster:
        try:
            if self._user is not None:
                os.chown(self._home, self._user.pw_uid, self._user.pw_gid)
            # To make an empty cluster takes seconds, to copy one hardly any time.
            made = install_once(_CACHE, f"{self._programs} {' '.join(_INITDB)}", self._make_cluster) / "data"
            if not self._data.exists():
                shutil.copytree(made, self._data)
                self._hand_over()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def _data(self) -> Path:
        return self._home / "data"

    def _make_cluster(self, folder: Path) -> None:
        # A folder that its user can write; that user may be unable to read the checkout.
        made = self._run("initdb", "-D", str(self._data), *_INITDB)
        assert made.returncode == 0, made.stderr.decode()
        shutil.copytree(self._data, folder / "data")

    def _hand_over(self) -> None:
        """Give the files to the user that the server runs as; the folder is readable only by its owner."""
        self._data.chmod(0o700)
        if self._user is not None:
            for place, _, files in os.walk(self._data):
                for name in (place, *(os.path.join(place, file) for file in files)):
                    os.chown(name, self._user.pw_uid, self._user.pw_gid)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        assert self._server is None
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self._home),
            "fsync": "on" if self._fsync else "off",
            "synchronous_commit": "on" if self._fsync else "off",
            "full_page_writes": "on" if self._fsync else "off",
            "max_connections": "100",
            "shared_buffers": "32MB",
            "log_min_messages": "fatal",
        }
        flags = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self._home / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [*self._as_user("--pdeathsig", "QUIT"), str(self._programs / "postgres"), "-D", str(self._data), *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._home,
            )
        end = time.monotonic() + 30
        while self._run("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)).returncode != 0:
            assert self._server.poll() is None and time.monotonic() < end, (self._home / "log").read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop the server and disconnect its clients."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End the server as a crash does: nothing is written any more."""
        # SIGQUIT and not SIGKILL: the server ends its own children at once and without writing, as after a crash.
        self._end(signal.SIGQUIT)

    def close(self) -> None:
        """Stop the server and delete its files."""
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self._home, ignore_errors=True)
            stack.callback(self.stop)

    def new_database(self, template: str = "template1") -> str:
        """The address of a copy of a database; of an empty one, unless another is named."""
        name = f"t{secrets.token_hex(6)}"
        self._command(f"CREATE DATABASE {name} TEMPLATE {template}")
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{name}"

    def drop_database(self, url: str) -> None:
        """Delete a database, also if clients are connected to it."""
        self._command(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")

    def _command(self, statement: str) -> None:
        async def command() -> None:
            connection = await asyncpg.connect(host="127.0.0.1", port=self.port, user=USER, database="postgres")
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        asyncio.run(command())

    def _end(self, how: signal.Signals) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        server.send_signal(how)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(20)

    def _run(self, program: str, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*self._as_user(), str(self._programs / program), *words],
            capture_output=True,
            timeout=60,
            cwd=self._home,
            stdin=subprocess.DEVNULL,
        )

    def _as_user(self, *flags: str) -> list[str]:
        setpriv = shutil.which("setpriv")
        if self._user is None:
            return [setpriv, *flags] if setpriv and flags else []
        assert setpriv is not None, "root needs `setpriv` to start PostgreSQL as another user"
        return [setpriv, f"--reuid={self._user.pw_uid}", f"--regid={self._user.pw_gid}", "--clear-groups", *flags]


def _other_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise AssertionError("there is no user to run PostgreSQL as")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
