"""These tests install and run whole platforms. They run only when selected by their mark: `pytest -m platform`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.platforms.install import FLOWISE, N8N, Platform, is_installed, platforms_folder
from tests.platforms.stub_model import StubModel


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "platform: drives a real n8n or Flowise; run by `make platforms`")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make test` and `make test-live` ignore this folder."""
    return None if "platform" in config.getoption("markexpr", "") else True


def home_of(platform: Platform) -> Path:
    """The folder of the installation; without it the test is skipped with the install command."""
    root = platforms_folder()
    if not is_installed(platform, root):
        pytest.skip(f"{platform.name} {platform.version} is not installed in {root}: python -m tests.platforms.install {platform.name}")
    return platform.folder(root)


@pytest.fixture(scope="session")
def n8n_home() -> Path:
    return home_of(N8N)


@pytest.fixture(scope="session")
def flowise_home() -> Path:
    return home_of(FLOWISE)


@pytest.fixture(scope="session")
def model() -> Iterator[StubModel]:
    with StubModel() as stub:
        yield stub
