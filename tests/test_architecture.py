"""The architecture: imports only go down the layers, public names are complete, and starting is cheap."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from docs.architecture_table import LAYERS, MOST_MODULES, SAME_LAYER, SHARED_ROOTS, SUBPACKAGES, WIDE
from docs.source_facts import read_facts

import proctor
from proctor.checks.registry import default_registry, iterate_builtin_modules, iterate_entries

SRC = Path(proctor.__file__).parent

TOP = {"__init__", "__main__", "examples"}


def modules() -> list[str]:
    found = [info.name for info in pkgutil.walk_packages([str(SRC)], "proctor.")]
    return ["proctor", *(name for name in found if not name.endswith("__main__"))]


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and module of every import of ours, also inside functions."""
    return ((line, module) for line, module, names in read_facts(path).imports if names != ("__version__",))


def module_name(path: Path) -> str:
    parts = ("proctor", *path.relative_to(SRC).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path, known: Collection[str]) -> set[str]:
    """Every module of ours that a file imports, at top level or inside a function."""
    found: set[str] = set()
    for _, module, names in read_facts(path).imports:
        if module in known:
            members = {f"{module}.{name}" for name in names}
            found |= {member if member in known else module for member in members} or {module}
    return found


@pytest.mark.timeout(60)
def test_imports_only_go_down_the_layers() -> None:
    wrong: list[str] = []
    for path in sorted(SRC.rglob("*.py")):
        package = path.relative_to(SRC).parts[0].removesuffix(".py")
        if package in TOP:
            continue
        assert package in LAYERS, f"{path}: the package {package!r} has no layer; add it to LAYERS"
        for line, module in imports_of(path):
            if module == "proctor":
                # `proctor` itself is above every layer.
                wrong.append(f"{path.relative_to(SRC)}:{line}: {package} imports the whole package; name the module")
                continue
            if not module.startswith("proctor."):
                continue
            other = module.split(".")[1]
            if other in TOP or other == package:
                continue
            allowed = LAYERS[other] < LAYERS[package] or other in SAME_LAYER.get(package, set())
            if not allowed:
                wrong.append(f"{path.relative_to(SRC)}:{line}: {package} (layer {LAYERS[package]}) imports {other} (layer {LAYERS[other]})")
    assert not wrong, "\n".join(wrong)


@pytest.mark.timeout(60)
def test_no_modules_import_each_other_in_a_circle() -> None:
    """Also not inside functions and not for types alone: two modules that know each other are one."""
    paths = {module_name(path): path for path in SRC.rglob("*.py")}
    reaches = {name: imported_modules(path, paths) - {name, "proctor"} for name, path in paths.items()}
    # A module that imports none of the remaining ones is in no cycle; those that remain in the end are.
    left = dict(reaches)
    while free := [name for name, others in left.items() if not others & left.keys()]:
        for name in free:
            del left[name]
    # The same from above: a module that no remaining module imports only leads into a cycle.
    while entries := left.keys() - set().union(*left.values()):
        for name in entries:
            del left[name]
    assert not left, "\n".join(f"{name} imports {', '.join(sorted(others & left.keys()))}" for name, others in sorted(left.items()))


@pytest.mark.parametrize("package", SUBPACKAGES)
def test_imports_between_subpackages_go_one_way(package: str) -> None:
    levels = {name: level for level, names in enumerate(SUBPACKAGES[package]) for name in names}
    folder, own = SRC / package.replace(".", "/"), ("proctor", *package.split("."))
    assert {path.parent.name for path in folder.glob("*/*.py")} == set(levels)
    wrong: list[str] = []
    for subpackage, level in levels.items():
        for path in sorted((folder / subpackage).rglob("*.py")):
            for line, module in imports_of(path):
                parts = module.split(".")
                if tuple(parts[: len(own)]) != own or len(parts) == len(own) or (other := parts[len(own)]) == subpackage:
                    continue
                allowed = levels[other] < level if other in levels else package in SHARED_ROOTS
                if not allowed:
                    wrong.append(f"{path.relative_to(SRC)}:{line}: {subpackage} imports {other}")
    assert not wrong, "\n".join(wrong)


def test_no_folder_has_too_many_modules() -> None:
    folders = {path.parent for path in SRC.rglob("*.py")}
    counts = {str(folder.relative_to(SRC)): sum(path.name != "__init__.py" for path in folder.glob("*.py")) for folder in folders}
    assert {name: count for name, count in counts.items() if count > MOST_MODULES and name not in WIDE} == {}


def test_the_pure_layers_touch_no_clock_disk_network_or_environment() -> None:
    banned = {"os", "socket", "subprocess", "time", "urllib", "http", "asyncio", "threading", "tempfile", "shutil", "random", "pathlib"}
    allowed = {
        ("checks", "os"): "the registry looks for plugins and their switch",
        ("simulators", "subprocess"): "a PDF that an agent sends is read in a process with limits",
        ("patterns", "threading"): "one interpreter of the regex engine per thread",
        ("model", "threading"): "one thread at a time lets msgspec learn a type",
    }
    wrong: list[str] = []
    for path in sorted(SRC.rglob("*.py")):
        package = path.relative_to(SRC).parts[0].removesuffix(".py")
        if LAYERS.get(package, 9) > 3:
            continue
        for line, module in imports_of(path):
            top = module.split(".")[0]
            # `urllib.parse` only joins and splits text.
            if top in banned and module != "urllib.parse" and (package, top) not in allowed:
                wrong.append(f"{path.relative_to(SRC)}:{line}: {package} imports {module}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.timeout(60)
def test_no_code_is_ever_run_from_text() -> None:
    wrong = [
        f"{path.relative_to(SRC)}:{line}: {name}"
        for path in sorted(SRC.rglob("*.py"))
        for line, name in read_facts(path).calls
        if name in ("eval", "exec", "compile", "__import__")
    ]
    assert not wrong, "\n".join(wrong)


LEARNS_A_TYPE = re.compile(
    r"msgspec\.convert\b|msgspec\.(?:json|msgpack|yaml|toml)\.(?:Decoder\((?!\))|decode\([^\n]*\btype=)"
    r"|from msgspec import [^\n]*\b(?:convert|json|msgpack)\b|from msgspec\.(?:json|msgpack)"
)


_UNIX_MODULES = {"fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "syslog", "readline", "curses"}
_UNIX_NAMES = {
    "os": {"register_at_fork", "fork", "killpg", "posix_spawn", "fdatasync", "pread", "pwrite", "nice", "WNOHANG", "getuid", "uname"},
    "signal": {"SIGHUP", "SIGKILL", "SIGALRM", "SIGVTALRM", "SIGCHLD", "SIGPIPE", "SIGQUIT", "SIGUSR1", "setitimer", "ITIMER_REAL"},
}


def needs_unix(code: ast.AST, *, inside: bool = False) -> Iterator[ast.AST]:
    """Every place that only Unix can load; `inside` a function or under a condition it may be tested first."""
    for node in ast.iter_child_nodes(code):
        deeper = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Try, ast.If))
        imported = isinstance(node, ast.Import) and {alias.name for alias in node.names} & _UNIX_MODULES
        named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in _UNIX_NAMES.get(node.value.id, ())
        # macOS is a Unix without `fdatasync`, so that asking for it is wrong everywhere.
        if ((imported or named) and not inside) or (named and isinstance(node, ast.Attribute) and node.attr == "fdatasync"):
            yield node
        yield from needs_unix(node, inside=deeper)


@pytest.mark.timeout(60)
def test_every_module_can_be_loaded_where_there_is_no_unix() -> None:
    scripts = {"guard_script.py"}  # started by the guard, where there is one
    files = [path for path in sorted(SRC.rglob("*.py")) if path.name not in scripts]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    # Most files do not name it and need not be parsed.
    words = tuple(_UNIX_MODULES | set.union(*_UNIX_NAMES.values()))
    matching = {path: text for path, text in texts.items() if any(word in text for word in words)}
    wrong = [f"{path.relative_to(SRC)}:{node.lineno}" for path, text in matching.items() for node in needs_unix(ast.parse(text))]  # type: ignore[attr-defined]
    assert not wrong, "\n".join(wrong)


def test_msgspec_learns_types_in_one_place_alone() -> None:
    """Two threads that let it learn one type at the same time end the process; `model/typed.py` lets one do it."""
    found = [
        f"{path.relative_to(SRC)}:{text.count(chr(10), 0, hit.start()) + 1}: {hit[0]}"
        for path in sorted(SRC.rglob("*.py"))
        for text in [path.read_text(encoding="utf-8")]
        for hit in LEARNS_A_TYPE.finditer(text)
    ]
    assert {line.partition(":")[0] for line in found} == {"model/typed.py"}, "\n".join(found)


def test_public_names_stand_once_load_and_are_what_type_checkers_see() -> None:
    names = [name for modules in proctor.PUBLIC_NAMES.values() for homes in modules.values() for name in homes]
    assert len(names) == len(set(names)) == 70
    assert proctor.__all__ == ["__version__", *sorted(names)]
    assert set(dir(proctor)) == set(proctor.__all__)
    for name in names:
        assert getattr(proctor, name) is not None
    stub = ast.parse((SRC / "__init__.pyi").read_text(encoding="utf-8"))
    assert sorted(alias.name for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names) == sorted(names)
    with pytest.raises(AttributeError, match="no attribute 'chek'"):
        _ = proctor.chek  # type: ignore[attr-defined]


def test_every_public_name_has_a_row_and_an_example_in_the_reference() -> None:
    page = (SRC.parents[1] / "docs/reference/python.md").read_text(encoding="utf-8")
    code = "\n".join(page.split("```python")[1:][i].split("```")[0] for i in range(page.count("```python")))
    for name in proctor.__all__[1:]:
        assert re.search(rf"\| `{name}\b", page), f"{name} has no row in docs/reference/python.md"
        assert re.search(rf"\b{name}\b", code), f"{name} has no example in docs/reference/python.md"


@pytest.mark.on_request
@pytest.mark.timeout(120)
def test_every_module_imports_alone_with_warnings_as_errors() -> None:
    script = Path(__file__).with_name("importing_alone.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    imported = json.loads(done.stdout)
    assert {name: error for name, error in imported.items() if error} == {}
    assert set(imported) == set(modules())


HEAVY = {
    "yaml", "quickjs", "regress", "jsonschema_rs", "fhirpathpy", "opentelemetry", "google", "pydantic", "rich", "click", "asyncio",
    "importlib.metadata", "dataclasses", "inspect_ai", "hypothesis", "jsonpath", "argparse", "msgspec", "typing", "re",
}  # fmt: skip


def loaded_by(code: str) -> set[str]:
    script = f"import sys; before = set(sys.modules); {code}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {[str(SRC.parent)]!r}; {script}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.strip().splitlines()[-1].split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not loaded_by("import proctor") & HEAVY


def test_asking_for_the_version_loads_nothing_heavy() -> None:
    assert not loaded_by("sys.argv = ['proctor', '--version']; import proctor.cli; proctor.cli.main()") & HEAVY


def test_checking_a_json_suite_does_not_load_what_it_does_not_use() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "proctor", "check", "--help"], capture_output=True, text=True, check=True
    )
    loaded = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    unwanted = {"yaml", "quickjs", "jsonschema_rs", "fhirpathpy", "opentelemetry", "importlib.metadata", "asyncio", "rich", "dataclasses"}
    assert not loaded & unwanted


def test_the_service_loads_the_protocol_of_tools_with_its_first_server() -> None:
    code = "import sys, proctor.rest.process, proctor.rest.app; print({'mcp', 'mcp_types'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_every_check_file_registers_something() -> None:
    for module in iterate_builtin_modules():
        assert list(iterate_entries(module)), f"{module.__name__} marks no check"


def test_every_check_has_a_summary_and_every_field_a_sentence() -> None:
    from proctor.formats.native.schema import read_field_docs

    for entry in default_registry():
        assert entry.summary, entry.name
        assert set(read_field_docs(entry.spec)) == set(entry.spec.__struct_fields__), f"{entry.name}: a field without a sentence under it"


def test_check_specs_are_frozen_and_omit_their_defaults() -> None:
    for entry in default_registry():
        config = entry.spec.__struct_config__
        assert config.frozen and config.omit_defaults, (
            f"{entry.name}: write `frozen=True, kw_only=True, omit_defaults=True` after msgspec.Struct"
        )


def test_no_module_is_named_utils() -> None:
    assert not [name for name in modules() if name.rsplit(".", 1)[-1] in ("utils", "util", "helpers", "common", "misc")]


def test_the_version_is_written_once() -> None:
    assert importlib.import_module("proctor").__version__ in (SRC / "__init__.py").read_text(encoding="utf-8")


def test_no_module_hides_a_public_name() -> None:
    # Importing `proctor.expect` would put the module where the function of that name is expected.
    children = {info.name for info in pkgutil.iter_modules([str(SRC)])}
    assert not children & set(proctor.__all__)
