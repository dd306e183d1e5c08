"""Imports every module alone and lists those that fail: `python tests/importing_alone.py`, run by `tests/test_architecture.py`.

A module is imported where the largest of its own imports was imported alone just now, and is forgotten afterwards: nothing of ours is
there but what it asks for itself, and next to nothing is loaded twice. All of it afresh for every module would take half a minute.
"""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import sys
import warnings
from collections import defaultdict
from pathlib import Path

import proctor

SRC = Path(proctor.__file__).parent


def find_modules() -> dict[str, Path]:
    """Every module but those that do something when they are imported."""
    found = {"proctor": SRC / "__init__.py"}
    for info in pkgutil.walk_packages([str(SRC)], "proctor."):
        place = SRC.joinpath(*info.name.split(".")[1:])
        if not info.name.endswith("__main__"):
            found[info.name] = place / "__init__.py" if info.ispkg else place.with_suffix(".py")
    return found


def list_imports(path: Path, known: dict[str, Path]) -> set[str]:
    """Return the top-level imports of a module, without those inside functions and blocks."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found & known.keys()


def grow_tree(known: dict[str, Path]) -> dict[str, list[str]]:
    """For each module those that are imported where it was; under no name those that import none of ours."""
    imports = {name: list_imports(path, known) - {name} for name, path in known.items()}
    reached: dict[str, set[str]] = {}

    def reach(name: str) -> set[str]:
        if name not in reached:
            reached[name] = set()  # another test reports import cycles
            reached[name] = {name}.union(*(reach(other) for other in imports[name]))
        return reached[name]

    tree: dict[str, list[str]] = defaultdict(list)
    for name in known:
        # Sorted, so that of two that are equally large every run takes the same.
        tree[max(sorted(imports[name]), key=lambda other: len(reach(other)), default="")].append(name)
    return tree


def import_below(name: str, tree: dict[str, list[str]], failed: dict[str, str | None]) -> None:
    for module in tree.get(name, ()):
        known = set(sys.modules)
        failed[module] = None
        try:
            importlib.import_module(module)
        except Exception as error:
            failed[module] = repr(error)
        import_below(module, tree, failed)
        forget(set(sys.modules) - known)


def forget(names: set[str]) -> None:
    """Unload those of these modules that are ours, also where their package has them."""
    for name in names:
        if name == "proctor" or name.startswith("proctor."):
            package, _, last = name.rpartition(".")
            if package in sys.modules and hasattr(sys.modules[package], last):
                delattr(sys.modules[package], last)
            del sys.modules[name]


def main() -> None:
    known = find_modules()
    tree = grow_tree(known)
    warnings.simplefilter("error")
    failed: dict[str, str | None] = {}
    forget(set(sys.modules))
    import_below("", tree, failed)
    print(json.dumps(failed))


if __name__ == "__main__":
    main()
