"""The sentence written under a field, read back for reference pages, `describe` and the schema."""

from __future__ import annotations

import ast
import functools
import sys

import msgspec


@functools.cache
def read_field_docs(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return the text under each field in the source by field name, inherited ones too; empty if there is no source."""
    docs: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        if issubclass(each, msgspec.Struct) and each is not msgspec.Struct:
            docs |= _own(each)
    return docs


def _own(struct: type[msgspec.Struct]) -> dict[str, str]:
    import inspect  # only reference pages and `describe` come here

    module = sys.modules.get(struct.__module__)
    try:
        tree = ast.parse(inspect.getsource(module)) if module is not None else None
    # Installed without sources, or typed into a prompt: the pages then lack these sentences, and nothing else does.
    except (OSError, TypeError, SyntaxError):
        return {}
    for item in ast.walk(tree) if tree is not None else ():
        if isinstance(item, ast.ClassDef) and item.name == struct.__name__:
            return _read_class_docs(item)
    return {}


def _read_class_docs(item: ast.ClassDef) -> dict[str, str]:
    docs: dict[str, str] = {}
    for field, following in zip(item.body, item.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            docs[field.target.id] = " ".join(following.value.value.split())
    return docs
