"""Unknown names in templates raise; missing members of documents are empty."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jinja2 import Undefined
from jinja2.utils import missing


class UnknownName(Undefined):
    """Raises for an unknown name, so that tests find typing errors; members of documents may be missing."""

    def __str__(self) -> str:
        self._refuse_name()
        return ""

    def __bool__(self) -> bool:
        self._refuse_name()
        return False

    def __iter__(self) -> Iterator[Any]:
        self._refuse_name()
        return iter(())

    def _refuse_name(self) -> None:
        if self._undefined_obj is missing:
            self._fail_with_undefined_error()
