"""Azure's Blob Storage and Data Lake by address: `az://container/path`, and `abfs://` in each of its spellings.

The account is in the address (`abfs://container@account.dfs.core.windows.net/path`, `?account=name`) or in the environment; its key or
signature is in the environment only, under the names of Azure's own tools. Without them the credentials of the machine are used.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote

from proctor.errors import InputError
from proctor.model.show import suggest

SCHEMES = ("az", "abfs", "abfss")
_DOMAINS = (".dfs.core.windows.net", ".blob.core.windows.net")
_ACCOUNT = ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
_KEY = ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")
_SIGNATURE = ("AZURE_STORAGE_SAS_TOKEN",)
_OPTIONS = ("account", "endpoint_override", "scheme")


def open_azure(arrow: Any, parts: SplitResult) -> tuple[Any, str]:
    """Return the file system of an address and the path in it; `arrow` is pyarrow.fs. Raises `InputError`, `OSError` and `ValueError`."""
    address = f"{parts.scheme}://{parts.netloc}{parts.path}"
    options = _read_options(parts.query)
    container, account, path = _split_address(parts)
    account = account or options.get("account") or _find_setting(_ACCOUNT)
    if not account:
        raise InputError(f"{address!r} names no account; set {_ACCOUNT[0]} in the environment, or append ?account=NAME")
    settings: dict[str, Any] = {}
    if "endpoint_override" in options:
        settings |= dict.fromkeys(("blob_storage_authority", "dfs_storage_authority"), options["endpoint_override"])
    if "scheme" in options:
        settings |= dict.fromkeys(("blob_storage_scheme", "dfs_storage_scheme"), options["scheme"])
    key, signature = _find_setting(_KEY), _find_setting(_SIGNATURE)
    settings |= {"account_key": key} if key else {"sas_token": signature} if signature else {}
    return arrow.AzureFileSystem(account, **settings), "/".join(filter(None, (container, path)))


def identify_store(parts: SplitResult) -> tuple[str, ...]:
    """Return the identity of the store of an address. Raises `InputError`."""
    options = _read_options(parts.query)
    account = _split_address(parts)[1] or options.pop("account", None) or _find_setting(_ACCOUNT) or ""
    return (account, *(f"{name}={value}" for name, value in sorted(options.items()) if name != "account"))


def _split_address(parts: SplitResult) -> tuple[str, str | None, str]:
    """Return the container, the account if the address names it, and the path in the container."""
    host, path = parts.hostname or "", unquote(parts.path).strip("/")
    domain = next((domain for domain in _DOMAINS if host.endswith(domain)), None)
    if domain is None:
        # As written: `hostname` would be in lower case.
        return parts.netloc.rpartition("@")[2], None, path
    account = host.removesuffix(domain)
    if parts.username:
        return unquote(parts.username), account, path
    # Without a name before the `@`, the container is the first part of the path.
    container, _, path = path.partition("/")
    return container, account, path


def _read_options(query: str) -> dict[str, str]:
    parameters = dict(parse_qsl(query))
    for name in parameters:
        if name not in _OPTIONS:
            raise InputError(f"unknown option {name!r} for Azure{suggest(name, _OPTIONS)}; expected {', '.join(_OPTIONS)}")
    return parameters


def _find_setting(names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)
