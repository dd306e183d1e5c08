"""Addresses of object stores: what they may contain and what they may not."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from proctor.errors import InputError
from proctor.sources.datasets import azure_store
from proctor.sources.datasets.files import _identify, _is_inside, open_store


class Arrow:
    """Return the arguments that would open a file system."""

    @staticmethod
    def AzureFileSystem(account: str, **options: Any) -> tuple[str, dict[str, Any]]:
        return account, options


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
    ("address", "message"),
    [
        ("az://traces/a", "names no account; set AZURE_STORAGE_ACCOUNT"),
        ("az://traces/a?acount=shop", "nearest: account"),
        ("az://traces/a?account=shop&account_key=k", "a key does not belong into an address"),
        ("abfs://traces:secret@shop.dfs.core.windows.net/a", "a key does not belong into an address"),
        ("gs://me@bucket/a", "a key does not belong into an address"),
        ("s3://anonymous@bucket/a", "a key does not belong into an address"),
    ],
)
def test_an_invalid_address_is_refused(address: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_store(address)


def test_a_google_address_may_name_a_public_bucket() -> None:
    files, path = open_store("gs://anonymous@bucket/a?endpoint_override=127.0.0.1:1&scheme=http&retry_limit_seconds=1")
    assert (files.type_name, path) == ("gcs", "bucket/a")


@pytest.mark.parametrize(
    ("one", "other", "path"),
    [
        ("gs://traces/2026", "gcs://traces/2026", "traces/2026/a.jsonl"),
        ("gs://anonymous@traces/2026", "gs://traces", "traces/2026/a.jsonl"),
        ("s3://traces/2026?region=a&scheme=http", "s3://traces?scheme=http&region=a", "traces/2026/a.jsonl"),
        ("az://traces/2026?account=shop", "abfss://traces@shop.dfs.core.windows.net/2026", "traces/2026/a.jsonl"),
        ("abfs://shop.blob.core.windows.net/traces", "abfs://traces/2026?account=shop", "traces/2026/a.jsonl"),
        ("az://traces", "az://traces?account=named", "traces/a.jsonl"),
    ],
)
def test_two_addresses_of_one_file_are_one_file(one: str, other: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "named")
    assert _identify(one, path) == _identify(other, path)
    assert _is_inside(_identify(other, path), _identify(one, path.rpartition("/")[0]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://traces", "gs://traces"),
        ("s3://traces", "s3://traces?endpoint_override=127.0.0.1:9000"),
        ("az://traces?account=shop", "az://traces?account=desk"),
        ("az://traces?account=shop", "az://traces?account=shop&endpoint_override=127.0.0.1:10000"),
    ],
)
def test_files_of_two_stores_are_two_files(one: str, other: str) -> None:
    assert _identify(one, "traces/a.jsonl") != _identify(other, "traces/a.jsonl")
