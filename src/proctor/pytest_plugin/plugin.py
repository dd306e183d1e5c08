"""The pytest plugin: options, collection of suites, and our own failure reports.

    pytest                                     # collects *.proctor.yaml, *.proctor.yml, *.proctor.json and the files in `proctor_suites`
    pytest --proctor-evidence runs.jsonl       # decides them on these recordings
    pytest --proctor-live                      # drives the agent for cases without a recording

pytest loads this file in every session of every project that has proctor installed. It imports only the fixtures and
the text of failures; the engine is loaded when a suite is collected or a fixture is used.

PYTEST_DONT_REWRITE: this file has no assertions, and pytest warns about modules that were loaded before it could rewrite them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from proctor.pytest_plugin.failures import WRITTEN_AT, CheckFailed, find_place, shorten_path, show_failure
from proctor.pytest_plugin.fixtures import proctor_check, proctor_doctor, proctor_evidence, proctor_judge, proctor_target

__all__ = ["proctor_check", "proctor_doctor", "proctor_evidence", "proctor_judge", "proctor_target"]

SUITE_ENDINGS = (".proctor.yaml", ".proctor.yml", ".proctor.json")
_WILDCARDS = ("*", "?")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our options."""
    group = parser.getgroup("proctor", "proctor: suites that examine agents")
    group.addoption(
        "--proctor-evidence",
        action="append",
        default=[],
        metavar="PATH",
        help="decide suites on this file or folder of evidence; may be given several times",
    )
    group.addoption("--proctor-live", action="store_true", help="drive the agent for cases that no evidence answers")
    group.addoption(
        "--proctor-target",
        metavar="TARGET",
        help="a target of proctor.yaml, or module:function, a URL or a command (default: default_target)",
    )
    group.addoption("--proctor-capture", choices=("otel",), help="for a function as the target: also read its spans")
    group.addoption("--proctor-trust", action="store_true", default=None, help="trust suites that are not in the working folder")
    group.addoption(
        "--proctor-mutate",
        type=_parse_percent,
        metavar="PERCENT",
        help="also plant faults in the evidence of each suite, and fail if a smaller share is detected; see `proctor mutate`",
    )
    parser.addini(
        "proctor_suites", "suite files to collect in addition to *.proctor.yaml: paths or patterns like suites/**/*.yaml", type="linelist"
    )
    parser.addini(
        "proctor_without_evidence",
        "without --proctor-live: whether a suite without evidence for any of its cases is a fail (default) or skip",
        default="fail",
    )
    parser.addini("proctor_complete", "parts that recordings contain completely, as `proctor check --complete`", default="")
    parser.addini("proctor_evidence", "files or folders of evidence, for suites without evidence next to them", type="paths")


def _parse_percent(text: str) -> float:
    if not 0 <= (value := float(text.removesuffix("%"))) <= 100:
        raise ValueError
    return value


def pytest_configure(config: pytest.Config) -> None:
    """Check the options: a missing file is a mistake, not an empty session."""
    config.addinivalue_line("markers", "proctor: a case of a proctor suite")
    # Absolute, because xdist processes may have another working directory.
    evidence = [config.invocation_params.dir / path for path in config.option.proctor_evidence]
    config.option.proctor_evidence = [str(path) for path in evidence]
    for path in (*evidence, *config.getini("proctor_evidence")):
        if not path.exists():
            raise pytest.UsageError(f"proctor: no evidence at {str(path)!r}: no such file or folder")
    choice = config.getini("proctor_without_evidence")
    if choice not in ("fail", "skip"):
        raise pytest.UsageError(f"proctor_without_evidence: expected fail or skip, found {choice!r}")
    for entry in config.getini("proctor_suites"):
        if not any(mark in entry for mark in _WILDCARDS) and not (_get_root(config) / entry).is_file():
            raise pytest.UsageError(f"proctor_suites: no suite file at {str(_get_root(config) / entry)!r}")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect suites, one item per case."""
    if not file_path.name.endswith(SUITE_ENDINGS) and not _is_listed(file_path, parent.config):
        return None
    from proctor.pytest_plugin.items import NO_SUITES, SuiteFile  # imports the readers of all dialects; most sessions have no suite

    return SuiteFile.from_parent(parent, path=file_path) if file_path.name not in NO_SUITES else None


def _is_listed(path: Path, config: pytest.Config) -> bool:
    listed: list[str] = config.getini("proctor_suites")
    if not listed:
        return False
    # Only the user's text is a pattern: the folder of the project may contain special characters.
    place = os.path.relpath(path, _get_root(config))
    if place in map(os.path.normpath, listed) or str(path) in listed:
        return True
    from proctor.patterns.globs import compile_glob, matches_glob  # only needed for patterns

    return any(matches_glob(compile_glob(os.path.normpath(entry)), place) for entry in listed if any(mark in entry for mark in _WILDCARDS))


def _get_root(config: pytest.Config) -> Path:
    return config.inipath.parent if config.inipath is not None else config.rootpath


def pytest_collection_finish(session: pytest.Session) -> None:
    """Reject untrusted suites before anything is driven."""
    config = session.config
    # Only if a suite was collected; with xdist, the controller does it for all workers.
    if "proctor.pytest_plugin.items" not in sys.modules or config.option.collectonly or hasattr(config, "workerinput"):
        return
    from proctor.pytest_plugin.items import refuse_untrusted_suites  # slow to load

    refuse_untrusted_suites(session.items, config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: Sequence[str]) -> None:
    """Reject untrusted suites under pytest-xdist, after all workers have reported their items."""
    session: pytest.Session | None = node.config.pluginmanager.getplugin("session")
    places = dict.fromkeys(node.config.rootpath / id.partition("::")[0] for id in ids)
    suites = [path for path in places if path.name.endswith(SUITE_ENDINGS) or _is_listed(path, node.config)]
    if session is None or not suites:
        return
    from proctor.pytest_plugin.items import SuiteFile, refuse_untrusted_suites  # slow to load

    selected = set(ids)
    items = [item for path in suites for item in SuiteFile.from_parent(session, path=path).collect()]
    refuse_untrusted_suites([item for item in items if item.nodeid in selected], node.config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show failures of `proctor_check` as our report, and skipped cases at their place in the suite."""
    report = yield
    location = item.stash.get(WRITTEN_AT, None)
    if location is not None and report.skipped and isinstance(report.longrepr, tuple):
        # pytest names the Python line of the skip, not the case.
        report.longrepr = (*location, report.longrepr[2])
    elif location is None and report.failed and call.excinfo is not None and isinstance(call.excinfo.value, CheckFailed):
        file, line = find_place(item, call.excinfo)
        shorter = shorten_path(Path(file), item.config.invocation_params.dir)
        report.longrepr = show_failure(call.excinfo.value, file, line, lead=f"{shorter}:{line}: in {item.name}\n\n")
    return report
