"""A Dask cluster with TLS for tests: a scheduler and two workers, each a process of its own, that can be killed and started again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import proctor

# In a separate process: imports of a test are unloaded after it, and these classes must not exist twice.
_MAKE_KEYS = (
    "import distributed; made = distributed.Security.temporary(); "
    "[open(name, 'w').write(text) for name, text in "
    "(('ca.pem', made.tls_ca_file), ('cert.pem', made.tls_scheduler_cert), ('key.pem', made.tls_scheduler_key))]"
)
_TLS = ["--tls-ca-file", "ca.pem", "--tls-cert", "cert.pem", "--tls-key", "key.pem"]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(Path(proctor.__file__).parents[1]),
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "20",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s",
}


class Cluster:
    """The processes of a cluster, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        subprocess.run([sys.executable, "-c", _MAKE_KEYS], cwd=folder, check=True)
        self.keys = {name: str(folder / f"{name}.pem") for name in ("ca", "cert", "key")}
        self.address = ""
        self._scheduler: subprocess.Popen[bytes] | None = None
        self._nannies: list[subprocess.Popen[bytes]] = []
        self._started = 0

    def start(self) -> None:
        """Start a scheduler and two workers."""
        self._started += 1
        file = self.folder / f"scheduler-{self._started}.json"
        place = ["--protocol", "tls", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
        self._scheduler = self._start("distributed.cli.dask_scheduler", "--scheduler-file", str(file), *place, *_TLS)
        while not file.exists() or not file.read_text().strip():
            assert self._scheduler.poll() is None, self.read_log()
            time.sleep(0.05)
        self.address = json.loads(file.read_text())["address"]
        for number in range(2):
            place = ["--nthreads", "1", "--no-dashboard", "--death-timeout", "30", "--local-directory", str(self.folder / f"dir{number}")]
            self._nannies.append(self._start("distributed.cli.dask_worker", self.address, *place, *_TLS))

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / "cluster.log").open("ab") as log:
            return subprocess.Popen([sys.executable, "-m", *command], cwd=self.folder, env=ENVIRONMENT, stderr=log, stdout=log)

    def read_log(self) -> str:
        """The output of the processes."""
        return (self.folder / "cluster.log").read_text()[-4_000:]

    def kill_worker(self) -> bool:
        """Kill a process that does the work, a child of its nanny; false where none is there now."""
        for pid in self._list_workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def kill_scheduler(self) -> None:
        """Kill the scheduler."""
        assert self._scheduler is not None
        self._scheduler.kill()
        self._scheduler.wait()

    def stop(self) -> None:
        """End everything that was started."""
        processes = [*self._nannies, *([self._scheduler] if self._scheduler is not None else [])]
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._nannies, self._scheduler = [], None

    def _list_workers(self) -> list[int]:
        found: list[int] = []
        for nanny in self._nannies:
            for task in Path(f"/proc/{nanny.pid}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    found += [int(pid) for pid in task.read_text().split() if _is_worker(int(pid))]
        return found


def _is_worker(pid: int) -> bool:
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"spawn_main" in command and b"resource_tracker" not in command
