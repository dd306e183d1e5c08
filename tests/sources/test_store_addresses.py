"""Addresses of object stores: what is said in them, and what is never said in them."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from proctor.errors import InputError
from proctor.sources import azure_store
from proctor.sources.dataset_files import open_store


class Arrow:
    """Says what a file system would be opened with."""

    @staticmethod
    def AzureFileSystem(account: str, **told: Any) -> tuple[str, dict[str, Any]]:
        return account, told


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*azure_store._ACCOUNT, *azure_store._KEY, *azure_store._SIGNATURE):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("address", "account", "path"),
    [
        ("az://traces/2026/10?account=shop", "shop", "traces/2026/10"),
        ("az://traces?account=shop", "shop", "traces"),
        ("abfs://traces@shop.dfs.core.windows.net/2026/10", "shop", "traces/2026/10"),
        ("abfss://traces@shop.blob.core.windows.net/", "shop", "traces"),
        ("abfs://shop.dfs.core.windows.net/traces/a%20b", "shop", "traces/a b"),
        ("abfs://traces/2026?account=shop", "shop", "traces/2026"),
    ],
)
def test_every_spelling_of_an_address_of_azure_is_understood(address: str, account: str, path: str) -> None:
    assert azure_store.open_azure(Arrow, urlsplit(address)) == ((account, {}), path)


def test_account_and_key_of_azure_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "shop")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sig")
    assert azure_store.open_azure(Arrow, urlsplit("az://traces/a"))[0] == ("shop", {"sas_token": "sig"})
    monkeypatch.setenv("AZURE_STORAGE_KEY", "k")
    found, _ = azure_store.open_azure(Arrow, urlsplit("az://traces/a?endpoint_override=127.0.0.1:10000&scheme=http"))
    authority = {"blob_storage_authority": "127.0.0.1:10000", "dfs_storage_authority": "127.0.0.1:10000"}
    assert found == ("shop", {**authority, "blob_storage_scheme": "http", "dfs_storage_scheme": "http", "account_key": "k"})


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("az://traces/a", "names no account; set AZURE_STORAGE_ACCOUNT"),
        ("az://traces/a?acount=shop", "nearest: account"),
        ("az://traces/a?account=shop&account_key=k", "a key does not belong into an address"),
        ("abfs://traces:secret@shop.dfs.core.windows.net/a", "a key does not belong into an address"),
        ("gs://me@bucket/a", "a key does not belong into an address"),
        ("s3://anonymous@bucket/a", "a key does not belong into an address"),
    ],
)
def test_what_an_address_may_not_say_is_refused(address: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        open_store(address)


def test_an_address_of_google_may_say_that_its_bucket_is_open_to_everybody() -> None:
    files, path = open_store("gs://anonymous@bucket/a?endpoint_override=127.0.0.1:1&scheme=http&retry_limit_seconds=1")
    assert (files.type_name, path) == ("gcs", "bucket/a")
