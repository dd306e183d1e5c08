"""Deaths in one batch on a Dask cluster, of workers, schedulers and drivers, then `--resume` on this machine: each trace once.

One of each, or `PROCTOR_BATCH_DEATHS` of them: ten in `make torture`.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.batches.batch_world import make_trace, read_results, write_parquet, write_suite
from tests.batches.dask_cluster import ENVIRONMENT, Cluster

try:
    import distributed
except ImportError:
    distributed = None

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(600),
    pytest.mark.skipif(distributed is None, reason="the extra dask is not installed"),
]

DEATHS = int(os.environ.get("PROCTOR_BATCH_DEATHS", "3"))
FILES = 8 * DEATHS
"""Enough to read that a batch is still at work when the last of them comes."""
ROWS = 2_000
KINDS = ("worker", "scheduler", "driver")
# Very small partitions, so that there are many moments to kill a process.
DRIVER = """\
import sys
from pathlib import Path
import proctor
from proctor.batches.run import BatchOptions, open_executor, run_batch
from proctor.processes.dask_executor import TlsFiles

address, ca, certificate, key = sys.argv[1:]
options = BatchOptions(places=("data",), output=Path("out"), partition_bytes=1, resume=True)
with open_executor("dask", scheduler=address, tls=TlsFiles(ca=ca, certificate=certificate, key=key)) as executor:
    try:
        run_batch(proctor.load_suite("suite.yaml"), options, executor)
    except proctor.InputError as error:
        sys.exit(str(error))
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster")
    try:
        made.start()
        yield made
    finally:
        made.stop()


class Killer:
    """Kills one after the other, each when a few more partitions are committed."""

    def __init__(self, cluster: Cluster, folder: Path, seed: int) -> None:
        self._cluster, self._folder = cluster, folder
        self._chance = random.Random(seed)
        self.killed: list[str] = []
        self.errors = ""

    def kill_all(self) -> None:
        while len(self.killed) < DEATHS:
            driver = self._start_driver()
            while len(self.killed) < DEATHS and self._wait_for_progress(driver):
                kind = KINDS[len(self.killed) % len(KINDS)]
                if kind == "worker" and not self._cluster.kill_worker():
                    # Its nanny has not started the next one yet.
                    continue
                self.killed.append(kind)
                if kind != "worker":
                    self._end(driver, kind)
                    break
            else:
                self._end(driver, "driver" if driver.poll() is None else "done")
                if driver.returncode == 0:
                    return

    def _start_driver(self) -> subprocess.Popen[str]:
        keys = self._cluster.keys
        command = [sys.executable, "driver.py", self._cluster.address, keys["ca"], keys["cert"], keys["key"]]
        return subprocess.Popen(command, cwd=self._folder, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)

    def _wait_for_progress(self, driver: subprocess.Popen[str]) -> bool:
        wanted = self._count_results() + self._chance.randrange(2, 12)
        while self._count_results() < wanted:
            if driver.poll() is not None:
                return False
            time.sleep(0.01)
        return True

    def _end(self, driver: subprocess.Popen[str], kind: str) -> None:
        if kind == "scheduler":
            self._cluster.kill_scheduler()
            self.errors += driver.communicate(timeout=120)[1]
            self._cluster.stop()
            self._cluster.start()
        elif kind == "driver":
            driver.kill()
        driver.communicate()

    def _count_results(self) -> int:
        return sum(1 for _ in (self._folder / "out" / "results").glob("part-*.parquet"))


@pytest.mark.on_request
def test_kills_on_a_cluster_lose_and_repeat_nothing(cluster: Cluster, tmp_path: Path) -> None:
    for number in range(FILES):
        write_parquet(tmp_path / "data" / f"{number:02}.parquet", [make_trace(row) for row in range(ROWS)], group=100)
    write_suite(tmp_path)
    (tmp_path / "driver.py").write_text(DRIVER)
    killer = Killer(cluster, tmp_path, seed=1)
    killer.kill_all()
    assert set(killer.killed) == set(KINDS) and len(killer.killed) == DEATHS, (killer.killed, cluster.read_log())
    assert "the Dask scheduler at tls://" in killer.errors and "--resume goes on" in killer.errors, killer.errors
    local = [sys.executable, "-m", "proctor", "batch", "suite.yaml", "data", "--output", "out", "--quiet", "--resume"]
    done = subprocess.run(local, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    found = Counter((row["file"], row["row"], row["case"]) for row in read_results(tmp_path / "out"))
    assert len(found) == FILES * ROWS * 2 and set(found.values()) == {1}
    assert not list((tmp_path / "out" / "results").glob(".*"))
