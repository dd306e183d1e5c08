"""The guides for agent frameworks as they are written, and `proctor init --for` in an empty folder: real packages and a scripted model.

Each framework has an environment of its own below `.frameworks/pages` (or `PROCTOR_FRAMEWORKS`), made once for both. `make test-live`
drives those that install in seconds, `make framework-pages` all of them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from proctor.actions.start.frameworks import FRAMEWORKS
from tests.executed_page import find_requirements
from tests.foreign import install_from_index
from tests.frameworks.order_model import keep_requests, serve_orders

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "how-to" / "frameworks"
KNOWN = yaml.load((ROOT / "tests/frameworks/pages.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
ENVIRONMENTS = Path(os.environ.get("PROCTOR_FRAMEWORKS") or ROOT / ".frameworks") / "pages"
NAMES = {name: guide for guide, row in KNOWN.items() for name in (guide, *row.get("also", ()))}
"""Every name of a framework, and the guide whose packages serve it."""
ALL = os.environ.get("PROCTOR_FRAMEWORK_PAGES") == "all"
_FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]


def install(name: str) -> Path:
    """The Python of a framework's environment, rebuilt when its packages change; skips if they cannot be installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages = [*project["dependencies"], *KNOWN[name]["packages"]]
    return install_from_index(ENVIRONMENTS / name, *packages) / "python"


def variables(address: str, home: Path) -> dict[str, str]:
    """The environment of a run, without variables that point to a real provider."""
    keep = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "SSL_CERT_FILE")}
    return {
        **keep,
        "HOME": str(home),
        "PYTHONPATH": str(ROOT / "src"),
        "NO_COLOR": "1",
        "NO_PROXY": "*",
        "OTEL_SDK_DISABLED": "true",
        "OPENAI_API_KEY": "sk-none",
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_BASE": f"{address}/v1",
        "GOOGLE_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": address,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_TRACING_ENABLED": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


def list_driven(names: Iterable[str]) -> list[str]:
    """Those that this run drives."""
    return [name for name in names if ALL or KNOWN[NAMES[name]].get("quick")]


def run_proctor(python: Path, here: Path, address: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one command as the reader would, in a folder of the reader's."""
    return subprocess.run(
        [python, "-m", "proctor", *arguments],
        cwd=here,
        env=variables(address, here.parent),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def read_result(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Read the result document that a command printed; frameworks print what they like before it."""
    assert "{" in done.stdout, done.stderr
    return json.loads(done.stdout[done.stdout.index("{") :])


def find_tried(requirement: str, packages: Iterable[str]) -> str | None:
    """The tested package, with its version, that an installer could choose for the requirement."""
    wanted = Requirement(requirement)
    for package in packages:
        one = Requirement(package)
        if (one.name, one.extras) == (wanted.name, wanted.extras) and wanted.specifier.contains(next(iter(one.specifier)).version):
            return package
    return None


def test_every_guide_and_every_framework_of_init_names_packages_that_are_tried() -> None:
    assert set(KNOWN) == {page.stem for page in PAGES.glob("*.md")}
    assert set(FRAMEWORKS) <= set(NAMES)
    for guide, row in KNOWN.items():
        named = [word for word in find_requirements((PAGES / f"{guide}.md").read_text(encoding="utf-8")) if word != "proctor-evals"]
        assert {find_tried(word, row["packages"]) for word in named} == set(row["packages"]), f"{guide}.md: {named}"
    for name, framework in FRAMEWORKS.items():
        assert None not in {find_tried(word, KNOWN[NAMES[name]]["packages"]) for word in framework.install.split()}, name


@pytest.mark.in_turn
@pytest.mark.parametrize("name", list_driven(KNOWN))
def test_the_page_gives_a_verdict_with_the_real_package(name: str, tmp_path: Path) -> None:
    python = install(name)
    here = tmp_path / "here"
    here.mkdir()
    for file, body in _FILE.findall((PAGES / f"{name}.md").read_text(encoding="utf-8")):
        (here / file).write_text(body, encoding="utf-8")
    suite = (here / "suite.yaml").read_text(encoding="utf-8")
    # A second case on the same target with a false claim: it must fail.
    refuted = "  - id: refuted\n    input: Where is order 23?\n    expect:\n      - tool_called: {name: refund}\n"
    (here / "suite.yaml").write_text(suite + refuted, encoding="utf-8")
    with serve_orders() as address:
        done = run_proctor(python, here, address, "run", "suite.yaml", "--format", "json", "--timeout", "120")
    outcomes = {case["id"]: case["outcome"] for case in read_result(done)["cases"]}
    assert outcomes == {"where": "pass", "refuted": "fail"}, done.stdout + done.stderr


@pytest.mark.in_turn
@pytest.mark.parametrize("name", list_driven(FRAMEWORKS))
def test_an_empty_folder_has_a_verdict_on_tools_and_arguments_after_two_commands(name: str, tmp_path: Path) -> None:
    python = install(NAMES[name])
    here = tmp_path / "here"
    here.mkdir()
    with serve_orders() as address:
        begun = run_proctor(python, here, address, "init", "--for", name)
        assert begun.returncode == 0, begun.stdout + begun.stderr
        ran = run_proctor(python, here, address, "run")
        stored = run_proctor(python, here, address, "show", "latest", "--format", "json")
    assert ran.returncode == 0 and "✓ PASS  first" in ran.stdout, ran.stdout + ran.stderr
    (case,) = read_result(stored)["cases"]
    assert [claim["outcome"] for claim in case["assertions"]] == ["pass", "pass"], stored.stdout
    calls = case["exchange"]["tool_calls"]
    # Semantic Kernel puts the plugin before the name of a tool.
    assert [call["arguments"] for call in calls if re.fullmatch(r"(?:\w+-)?lookup_order", call["name"])] == [{"id": 17}], calls
    assert "Order 17 is on its way" in case["exchange"]["answer"]
    parts = case["evidence"]["account"]["parts"]
    assert {parts[part]["status"] for part in ("tool_calls", "tool_arguments", "answer")} == {"recorded"}, parts


PEOPLE = ("Red", "Blue", "Green", "Grey")
TALKS = "proctor: 1\nname: Conversations\ncases:\n" + "".join(
    f"""\
  - id: {person}
    turns:
      - {{input: "I am {person}. Where is order 17?", expect: [response_not_empty]}}
      - {{input: "Where is order 18?", expect: [response_not_empty]}}
"""
    for person in PEOPLE
)


@pytest.mark.on_request
@pytest.mark.parametrize("name", list_driven(NAMES))
def test_concurrent_cases_have_separate_conversations_that_last_over_turns(name: str, tmp_path: Path) -> None:
    python = install(NAMES[name])
    here = tmp_path / "here"
    here.mkdir()
    with serve_orders() as address, keep_requests() as requests:
        run_proctor(python, here, address, "init", "--for", name)
        (here / "suite.yaml").write_text(TALKS, encoding="utf-8")
        ran = run_proctor(python, here, address, "run", "suite.yaml", "-j", "4")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    named = [[person for person in PEOPLE if f"I am {person}." in json.dumps(request)] for request in requests]
    assert not [people for people in named if len(people) > 1], "a case saw the conversation of another"
    later = [people for people, request in zip(named, requests, strict=True) if "order 18" in json.dumps(request)]
    restarts = "each turn starts from the beginning" in FRAMEWORKS[name].remark
    assert later and all(bool(people) != restarts for people in later), "a later turn is of the same conversation"
