"""The GitHub Action and the GitLab template: their shell steps run for real, against a `gh`, a `pip` and an API that are not."""

from __future__ import annotations

import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
GITLAB: dict[str, Any] = yaml.safe_load((ROOT / "ci/gitlab/proctor.gitlab-ci.yml").read_text(encoding="utf-8"))
STEPS: dict[str, dict[str, Any]] = {step["id"]: step for step in ACTION["runs"]["steps"]}
AGENT = """\
import os

def answer(message):
    return "no idea" if message in os.environ.get("AGENT_FAILS", "").split() else f"you sent {message}"
"""
GH = """\
#!{python}
import json, sys
from pathlib import Path
words = sys.argv[1:]
body = next((Path(word[6:]).read_text() for word in words if word.startswith("body=@")), None)
with open({log!r}, "a") as log:
    log.write(json.dumps({{"words": words, "body": body}}) + "\\n")
if Path({known!r}).exists() and "--jq" in words:
    print(Path({known!r}).read_text())
if "--method" in words and Path({refuses!r}).exists():
    sys.exit(1)
"""
pytestmark = pytest.mark.timeout(120)


class Job:
    """A local GitHub job: a folder, an environment and the output of its steps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.outputs: dict[str, dict[str, str]] = {}
        self.github = {"event_name": "push", "ref_name": "main", "repository": "me/shop", "action_path": "/action"}
        self.inputs = {name: given.get("default", "") for name, given in ACTION["inputs"].items()}
        self.inputs |= {"suite": "suite.yaml", "working-directory": str(folder)}
        self.environment = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "AGENT_FAILS": "",
            "GITHUB_SHA": "abc",
        }
        self._write("proctor", f'#!/bin/sh\nexec "{sys.executable}" -m proctor "$@"\n')
        self._write("python", f'#!/bin/sh\nif [ "$2" = pip ]; then echo "$@" >> {folder}/pip.log; else exec "{sys.executable}" "$@"; fi\n')
        self.log = folder / "gh.log"
        files = {"log": str(self.log), "known": str(folder / "known"), "refuses": str(folder / "refuses")}
        self._write("gh", GH.format(python=sys.executable, **files))

    def _write(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def step(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run one shell step as GitHub does: expressions in `env` only, outputs through a file."""
        step = STEPS[name]
        assert step["shell"] == "bash" and "${{" not in step["run"], "text of strangers never becomes a part of a script"
        output = self.folder / f"{name}.output"
        output.touch()
        given = {key: self._fill(str(value)) for key, value in step.get("env", {}).items()}
        environment = {**self.environment, **given, "GITHUB_OUTPUT": str(output), "HOME": str(self.folder)}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env=environment,
        )
        self.outputs[name] = dict(line.split("=", 1) for line in output.read_text().splitlines())
        return done

    def _fill(self, text: str) -> str:
        def value(found: re.Match[str]) -> str:
            for choice in found[1].split("||"):
                words = choice.strip().split(".")
                if words[0] == "inputs":
                    return self.inputs[".".join(words[1:])]
                if words[:1] == ["runner"]:
                    return str(self.folder / "temp")
                if words[0] == "steps":
                    return self.outputs[words[1]].get(words[3], "")
                if words[0] == "github" and words[-1] in self.github:
                    return self.github[words[-1]]
            return ""

        return re.sub(r"\$\{\{ *([^}]*?) *\}\}", value, text)

    def called(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []


@pytest.fixture
def job(tmp_path: Path) -> Job:
    cases = [{"id": case, "input": case, "expect": [{"response_contains": "you sent"}]} for case in ("a", "b", "c")]
    (tmp_path / "suite.yaml").write_text(json.dumps({"proctor": 1, "name": "Gate", "cases": cases}))
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "proctor.yaml").write_text('targets: {agent: {type: callable, function: "agent:answer"}}\n')
    return Job(tmp_path)


def on_main(job: Job, fails: str = "") -> None:
    job.github["event_name"] = "push"
    job.environment["AGENT_FAILS"] = fails
    assert job.step("run").returncode == 0
    assert job.step("choose").returncode == 0


def on_pull_request(job: Job, fails: str = "") -> str:
    """Run the steps of a pull request; returns the comment."""
    job.github |= {"event_name": "pull_request", "head_ref": "mine", "base_ref": "main", "number": "7"}
    job.environment["AGENT_FAILS"] = fails
    for name in ("run", "compare", "comment"):
        done = job.step(name)
        assert done.returncode == 0, done
    return (Path(job.outputs["run"]["report"]) / "comment.md").read_text()


def test_the_action_installs_the_requested_extras(job: Job) -> None:
    job.github["action_path"] = str(ROOT)
    assert job.step("install").returncode == 0
    job.inputs["extras"] = ""
    job.step("install")
    found = [
        re.fullmatch(r"-m pip install --quiet --constraint (\S+) (.*)", line) for line in (job.folder / "pip.log").read_text().splitlines()
    ]
    assert [match and match[2] for match in found] == [f"{ROOT}[live]", str(ROOT)]
    assert found[0] is not None
    locked = Path(found[0][1]).read_text().splitlines()
    assert all(line.count("==") == 1 for line in locked) and any(line.startswith("msgspec==") for line in locked)


def test_actions_are_pinned_by_commit() -> None:
    used = re.findall(r"uses: (\S+)", "".join((ROOT / name).read_text() for name in ("action.yml", ".github/workflows/ci.yml")))
    assert used and all(re.search(r"@[0-9a-f]{40}$", name) for name in used)


@pytest.mark.in_turn
def test_a_pull_request_is_compared_with_the_run_of_main(job: Job) -> None:
    on_main(job, fails="a")
    comment = on_pull_request(job, fails="a b")
    assert job.outputs["run"]["exit-code"] == "1" and job.step("verdict").returncode == 1
    assert comment.startswith("<!-- proctor: proctor -->\n") and "### Newly failing" in comment and "| `b` |" in comment
    report = Path(job.outputs["run"]["report"])
    assert all((report / name).stat().st_size for name in ("report.html", "comparison.html", "results.xml"))
    posted = job.called()[-1]
    assert posted["words"][-4:-2] == ["POST", "repos/me/shop/issues/7/comments"] and posted["body"] == comment


@pytest.mark.on_request
def test_failures_of_main_do_not_fail_a_pull_request(job: Job) -> None:
    on_main(job, fails="a")
    comment = on_pull_request(job, fails="a")
    assert job.outputs["run"]["exit-code"] == "0" and job.step("verdict").returncode == 0
    assert "## ✅ Gate" in comment and "let through: 1 case that fails: a" in comment
    job.inputs["fail-on"] = ""
    on_pull_request(job, fails="a")
    assert job.step("verdict").returncode == 1


@pytest.mark.in_turn
def test_a_suite_that_a_pull_request_renames_is_run_and_commented_on(job: Job) -> None:
    on_main(job)
    suite = json.loads((job.folder / "suite.yaml").read_text())
    (job.folder / "suite.yaml").write_text(json.dumps({**suite, "name": "Renamed"}))
    assert "so every failure counts" in on_pull_request(job) and job.outputs["run"]["exit-code"] == "0"
    assert "3 failed" not in on_pull_request(job, fails="a") and job.outputs["run"]["exit-code"] == "1"
    cases = [{**case, "id": f"new-{case['id']}"} for case in suite["cases"]]
    (job.folder / "suite.yaml").write_text(json.dumps({**suite, "cases": cases}))
    assert on_pull_request(job, fails="a") and job.outputs["run"]["exit-code"] == "1"


@pytest.mark.in_turn
def test_an_agent_that_did_not_change_does_not_fail_a_pull_request_by_chance(job: Job) -> None:
    (job.folder / "agent.py").write_text(
        "import itertools, os\n"
        "calls = itertools.count(int(os.environ['START']))\n"
        "def answer(message):\n"
        "    return 'no idea' if next(calls) % 20 == 7 else f'you sent {message}'\n"
    )
    cases = [{"id": f"c{n}", "input": "hi", "expect": [{"response_contains": "you sent"}]} for n in range(30)]
    (job.folder / "suite.yaml").write_text(json.dumps({"proctor": 1, "name": "Gate", "cases": cases}))
    job.environment["START"] = "0"
    on_main(job)
    job.environment["START"] = "10"
    on_pull_request(job)
    assert job.outputs["run"]["exit-code"] == "0", "each 1 of 20 attempts fails, now of other cases"


def test_arguments_are_split_as_a_shell_splits_them_and_never_executed(job: Job) -> None:
    job.inputs["arguments"] = """--name 'two words' --note "$(touch hacked) *" -k 'id=a or id=b'"""
    on_main(job)
    listed = subprocess.run(["proctor", "list"], capture_output=True, text=True, check=True, cwd=job.folder, env=job.environment).stdout
    assert "two words" in listed and not (job.folder / "hacked").exists()
    job.inputs["arguments"] = "--name 'open"
    assert job.step("run").returncode == 4


def test_without_a_run_of_main_every_failure_counts(job: Job) -> None:
    comment = on_pull_request(job, fails="a")
    assert "The base branch has no run to compare with yet." in comment and job.step("verdict").returncode == 1


@pytest.mark.in_turn
def test_one_comment_is_updated(job: Job) -> None:
    on_main(job)
    (job.folder / "known").write_text("4711")
    on_pull_request(job)
    words = job.called()[-1]["words"]
    assert "PATCH" in words and "repos/me/shop/issues/comments/4711" in words


def test_a_comment_that_may_not_be_written_is_a_warning(job: Job) -> None:
    (job.folder / "refuses").touch()
    on_pull_request(job)
    assert "::warning::" in job.step("comment").stdout


@pytest.mark.in_turn
def test_a_long_comment_is_cut_between_characters(job: Job) -> None:
    cases = [{"id": f"{'ü' * 60}{n}", "input": "a", "expect": [{"response_contains": "é" * 200}] * 3} for n in range(90)]
    (job.folder / "suite.yaml").write_text(json.dumps({"proctor": 1, "name": "Gate", "cases": cases}))
    assert 0 < len(on_pull_request(job).encode()) <= 60000


@pytest.mark.on_request
def test_only_baselines_are_cached(job: Job) -> None:
    on_main(job)
    on_main(job)
    assert len(list((job.folder / ".proctor" / "runs").iterdir())) == 1


def test_a_suite_that_cannot_be_read_ends_the_job_with_its_code(job: Job) -> None:
    (job.folder / "suite.yaml").write_text("proctor: 1\ncases: 3\n")
    job.step("run")
    assert job.outputs["run"]["exit-code"] == "4" and job.step("verdict").returncode == 4
    job.inputs["name"] = "a b; rm"
    assert job.step("run").returncode == 4


def test_the_action_has_the_shape_that_github_asks_for() -> None:
    assert set(ACTION) == {"name", "description", "inputs", "outputs", "runs"} and ACTION["runs"]["using"] == "composite"
    assert all(set(given) <= {"description", "required", "default"} and given["description"] for given in ACTION["inputs"].values())
    assert all(set(given) == {"description", "value"} for given in ACTION["outputs"].values())
    for step in ACTION["runs"]["steps"]:
        assert ("run" in step) != ("uses" in step), step["id"]
        assert set(step) <= {"id", "if", "shell", "working-directory", "env", "run", "uses", "with"}
        assert ("run" in step) == ("shell" in step)
        assert "uses" not in step or re.fullmatch(r"actions/[\w/-]+@[0-9a-f]{40}", step["uses"])
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(ACTION["inputs"])
    assert set(re.findall(r"steps\.([\w-]+)\.", text)) <= set(STEPS)


class _Notes(http.server.BaseHTTPRequestHandler):
    def _answer(self) -> None:
        seen: list[tuple[str, str, Any]] = self.server.seen  # type: ignore[attr-defined]
        size = int(self.headers.get("Content-Length") or 0)
        seen.append((self.command, self.path, json.loads(self.rfile.read(size)) if size else None))
        data = json.dumps(self.server.notes if self.command == "GET" else {}).encode()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def gitlab() -> Iterator[Any]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Notes)
    server.seen, server.notes = [], []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def run_gitlab(job: Job, part: str = "script", **variables: str) -> subprocess.CompletedProcess[str]:
    (script,) = GITLAB["proctor"][part]
    given = {**GITLAB["proctor"]["variables"], "CI_COMMIT_REF_NAME": "main", "CI_COMMIT_SHA": "abc", **variables}
    return subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False, cwd=job.folder, env={**job.environment, **given}
    )


@pytest.mark.live
def test_gitlab_compares_comments_and_stores_the_run_of_the_default_branch(job: Job, gitlab: Any) -> None:
    job.environment["AGENT_FAILS"] = "a"
    assert run_gitlab(job).returncode == 1, "it fails on the default branch, and is what others are held against"
    request = {
        "CI_MERGE_REQUEST_IID": "5",
        "CI_PROJECT_ID": "9",
        "PROCTOR_GITLAB_TOKEN": "t",
        "CI_API_V4_URL": f"http://127.0.0.1:{gitlab.server_address[1]}",
    }
    done = run_gitlab(job, **request)
    assert done.returncode == 0, done.stderr
    method, path, body = gitlab.seen[-1]
    assert (method, path) == ("POST", "/projects/9/merge_requests/5/notes") and body["body"].startswith("<!-- proctor -->\n## ")
    gitlab.notes = [{"id": 3, "body": body["body"]}]
    job.environment["AGENT_FAILS"] = "a b"
    assert run_gitlab(job, **request).returncode == 1
    method, path, body = gitlab.seen[-1]
    assert (method, path) == ("PUT", "/projects/9/merge_requests/5/notes/3") and "Newly failing" in body["body"]
    assert (job.folder / "proctor-report" / "comparison.html").exists()


def test_gitlab_installs_proctor_and_the_needs_of_the_agent(job: Job) -> None:
    refused = run_gitlab(job, "before_script")
    assert refused.returncode == 4 and "set PROCTOR_INSTALL to where proctor is kept" in refused.stderr
    done = run_gitlab(job, "before_script", PROCTOR_INSTALL="proctor @ git+https://here/proctor.git", PROCTOR_REQUIREMENTS="needs.txt")
    assert done.returncode == 0, done.stderr
    installed = (job.folder / "pip.log").read_text().splitlines()
    assert installed == ["-m pip install --quiet proctor @ git+https://here/proctor.git", "-m pip install --quiet -r needs.txt"]


def test_the_gitlab_template_reads_the_cache_in_merge_requests_and_writes_it_on_the_default_branch() -> None:
    given = GITLAB["proctor"]
    assert [rule["variables"]["PROCTOR_CACHE_POLICY"] for rule in given["rules"]] == ["pull", "pull-push"]
    assert given["cache"]["policy"] == "$PROCTOR_CACHE_POLICY" and given["artifacts"]["reports"]["junit"] == "proctor-report/results.xml"
