"""A local folder under the address of an object store: every request is delayed and counted."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pytest

from proctor.batches import output_store
from proctor.sources.datasets import files as dataset_files


class _SlowFile:
    """Each `read` is a request."""

    def __init__(self, handler: SlowHandler, file: Any) -> None:
        self._handler, self._file = handler, file
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        self._handler.wait()
        return bytes(self._file.read(None if size < 0 else size))

    def seek(self, place: int, whence: int = 0) -> int:
        return int(self._file.seek(place, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def size(self) -> int:
        return int(self._file.size())

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True

    def flush(self) -> None:
        return None

    def close(self) -> None:
        self.closed = True
        self._file.close()


class SlowHandler(pyarrow.fs.FileSystemHandler):
    """The file system interface of pyarrow over local files, with delays."""

    def __init__(self, latency_s: float) -> None:
        self.latency_s, self.requests = latency_s, 0
        self._local = pyarrow.fs.LocalFileSystem()
        self._lock = threading.Lock()

    def wait(self) -> None:
        with self._lock:
            self.requests += 1
        time.sleep(self.latency_s)

    def get_type_name(self) -> str:
        return "slow"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> Any:
        self.wait()
        return self._local.get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        self.wait()
        return self._local.get_file_info(selector)

    def open_input_file(self, path: str) -> Any:
        self.wait()
        return pa.PythonFile(_SlowFile(self, self._local.open_input_file(path)), mode="r")

    open_input_stream = open_input_file

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        self.wait()
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return self._local.open_output_stream(path)

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError

    def create_dir(self, path: str, recursive: bool) -> None:
        raise NotImplementedError

    def delete_dir(self, path: str) -> None:
        self.wait()
        self._local.delete_dir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        self.wait()
        self._local.delete_file(path)

    def move(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError


def use_slow_store(monkeypatch: pytest.MonkeyPatch, root: Path, latency_s: float) -> SlowHandler:
    """Map `s3://...` to the folder `root`."""
    handler = SlowHandler(latency_s)
    files = pyarrow.fs.PyFileSystem(handler)

    def open_store(address: str) -> tuple[Any, str]:
        return files, f"{root}/{address.removeprefix('s3://')}".rstrip("/")

    monkeypatch.setattr(dataset_files, "open_store", open_store)
    monkeypatch.setattr(output_store, "open_store", open_store)
    return handler
