"""The report in every format, expected failures, profiles, and how a server is named."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import proctor
from proctor.actions.doctor.server_names import find_server
from proctor.cli.main import run
from proctor.doctor.catalogue import CHECKS, find_profile, parse_profile, read_expected
from proctor.doctor.examine import Options, apply_expected, examine
from proctor.doctor.model import REVISIONS, Examination, Finding, compute_score
from proctor.doctor.report import build_document, describe_verdict
from proctor.errors import InputError, TargetError
from proctor.report.document.html import write_html
from proctor.report.document.markdown import write_markdown
from proctor.report.document.terminal import write_terminal
from proctor.targets.mcp.settings import ServerSettings
from tests.doctor.servers import SCRIPT, look
from tests.tables import load_document

pytest_plugins = ["pytester"]
COMMAND = f"{sys.executable} -S {SCRIPT}"


@pytest.fixture(scope="module")
def broken() -> Examination:
    return look("unknown-tool", timeout_s=2.0)


def test_a_report_names_check_clause_and_evidence_once_for_both_revisions(broken: Examination) -> None:
    text = write_terminal(build_document(broken, "terminal"))
    assert text.count("  unknown-tool  ") == 1 and "2025-11-25, 2026-07-28" in text
    assert "specification/2026-07-28/server/tools" in text and "no tool was called" in text
    assert "score 9" in text and len(text.splitlines()) <= 60
    page, markdown = write_html(build_document(broken, "html")), write_markdown(build_document(broken, "markdown"))
    assert "A call of an unknown tool fails." in page and "**unknown-tool**" in markdown


def test_an_expected_failure_passes_and_a_stale_entry_fails(broken: Examination) -> None:
    entries = read_expected("# known\nunknown-tool\n", "known.txt")
    assert not apply_expected(broken, entries).failed
    assert apply_expected(broken, ("unknown-tool@2025-11-25",)).failed
    stale = apply_expected(broken, ("unknown-tool", "ping"))
    assert stale.failed and stale.stale == ("ping",) and "did not occur" in describe_verdict(stale)[1]
    with pytest.raises(InputError, match=r"known.txt:2: unknown check 'pin'; nearest: ping"):
        read_expected("\npin", "known.txt")
    with pytest.raises(InputError, match="unknown revision"):
        read_expected("ping@2024", "known.txt")


def test_profiles_are_frozen() -> None:
    frozen = load_document("doctor/cases/profiles.yaml")
    now = {find_profile(revision).name: [f"{each.id} {each.level}" for each in find_profile(revision).checks] for revision in REVISIONS}
    assert now == frozen, "a published profile never changes: add the check with `since`, and raise VERSION"
    assert parse_profile("mcp-2025-06-18") == ("2025-06-18", 1)
    with pytest.raises(InputError, match="mcp-2025-06-18@1"):
        parse_profile("mcp-2025-06-17@1")


def test_every_check_has_a_unique_id_a_claim_and_a_clause() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    assert all(check.claim.endswith(".") and check.clause and check.revisions for check in CHECKS)


def test_every_clause_is_on_a_page_of_its_revision() -> None:
    # As `docs/docs.json` of the specification's repository lists them.
    utilities = [f"server/utilities/{name}" for name in ("completion", "logging", "pagination")]
    always = ["basic", "server/tools", "server/resources", "server/prompts", "client/elicitation", *utilities]
    handshake = ["basic/lifecycle", "basic/transports", *(f"basic/utilities/{name}" for name in ("cancellation", "ping", "progress"))]
    stateless = ["server/discover", "server/utilities/caching", "basic/versioning", "basic/authorization", "basic/transports"]
    stateless += [f"basic/patterns/{name}" for name in ("cancellation", "progress", "subscriptions")]
    stateless += ["basic/transports/stdio", "basic/transports/streamable-http", "schema"]
    newer = {"2024-11-05": [], "2025-03-26": ["basic/authorization"]}
    for check in CHECKS:
        for revision in check.revisions:
            page = check.find_page(revision)
            pages = [*always, *(stateless if revision == REVISIONS[-1] else handshake)]
            pages += newer.get(revision, ["basic/authorization", "schema", "basic/utilities/tasks"])
            known = [f"https://modelcontextprotocol.io/specification/{revision}/{each}" for each in pages]
            known.append(f"https://github.com/modelcontextprotocol/modelcontextprotocol/blob/main/schema/{revision}/schema.ts")
            if "auth" in page and revision == "2024-11-05":
                known.append("https://modelcontextprotocol.io/specification/2025-03-26/basic/authorization")
            assert page in known or page == "https://modelcontextprotocol.io/seps/2663-tasks-extension", (check.id, page)


def finding(level: Any, verdict: Any) -> Finding:
    return Finding(check="c", area="wire", level=level, verdict=verdict)


def test_the_score_counts_violations_obstacles_and_advice() -> None:
    good = tuple(finding("MUST", "pass") for _ in range(19))
    assert compute_score(good) == (100, False)
    assert compute_score((*good, finding("SHOULD", "advice"), finding("MAY", "advice"))) == (97, False)
    assert compute_score((*good, finding("MUST", "fail"))) == (94, False)
    assert compute_score((*good, finding("MUST", "could_not_run"))) == (94, True)
    assert compute_score((*good, *(finding("SHOULD", "advice") for _ in range(9)))) == (95, False)
    assert compute_score((finding("MUST", "not_applicable"),)) == (None, False)


# --- the command ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are stored in a folder of the test."""
    monkeypatch.chdir(tmp_path)


def test_the_exit_code_is_that_of_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--profile", "mcp-2025-11-25", "--no-color", "--timeout", "2"]
    assert run(["doctor", COMMAND, *quick]) == 0
    assert "PASSED" in capsys.readouterr().out
    assert run(["doctor", f"{COMMAND} --defect ping", *quick, "--only", "lifecycle"]) == 1
    assert run(["doctor", f"{COMMAND} --defect stdio-stays", *quick, "--only", "tools"]) == 2
    assert run(["doctor", "no-such-program --x", *quick]) == 4
    assert run(["doctor", COMMAND, "--fuzz", "3"]) == 4
    assert "cannot be started" in (stderr := capsys.readouterr().err) and "`fuzz` needs `calls`" in stderr


def test_a_lock_is_written_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = str(tmp_path / "mcp-lock.json")
    assert run(["doctor", "lock", COMMAND, "--output", lock]) == 0
    assert run(["doctor", COMMAND, "--lock", lock, "--no-color"]) == 0
    assert run(["doctor", f"{COMMAND} --defect tool-description-length", "--lock", lock, "--no-color"]) == 1
    assert "reworded: tool `find_order` has another description" in capsys.readouterr().out


def test_a_server_is_found_by_command_address_name_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_server("npx -y a b", tmp_path).args == ("-y", "a", "b")
    assert find_server("https://a.example/mcp", tmp_path, token="t-123456").list_secrets() == ("t-123456",)
    monkeypatch.setenv("SHOP_KEY", "key-123")
    (tmp_path / "mcp.json").write_text(
        '{"mcpServers": {"shop": {"command": "shop", "env": {"API_KEY": "${SHOP_KEY}"}, "disabled": false}, "web": {"url": "https://a/mcp"}}}'
    )
    assert find_server(f"{tmp_path}/mcp.json:shop", tmp_path).env == {"API_KEY": "key-123"}
    assert find_server(f"{tmp_path}/mcp.json:web", tmp_path).transport == "http"
    with pytest.raises(InputError, match="several servers"):
        find_server(f"{tmp_path}/mcp.json", tmp_path)
    (tmp_path / "proctor.yaml").write_text(
        "targets:\n  agent:\n    type: mcp_agent\n    model: m\n    servers:\n      shop: {command: shop, env: {API_KEY: '${SHOP_KEY}'}}\n"
    )
    assert find_server("shop", tmp_path).env == {"API_KEY": "key-123"}
    with pytest.raises(InputError, match="no such program; nearest: shop"):
        find_server("shob", tmp_path)
    assert find_server("env", tmp_path).command == "env", "a shell takes the quotes of a command of one word away"
    with pytest.raises(InputError, match="no MCP server 'env'"):
        find_server("env", tmp_path, programs=False)


@pytest.mark.in_turn
def test_the_function_of_python_and_the_fixture_of_pytest(pytester: pytest.Pytester) -> None:
    found = proctor.examine_server(COMMAND, profiles=["mcp-2025-11-25"], areas=["tools"])
    assert found.score == 100 and {each.area for each in found.findings} == {"tools"}
    server = msgspec.json.encode({"command": sys.executable, "args": ["-S", str(SCRIPT), "--defect", "ping"]}).decode()
    pytester.makepyfile(
        f"""
        def test_good(proctor_doctor):
            assert proctor_doctor({COMMAND!r}, areas=["tools"]).score == 100

        def test_bad(proctor_doctor):
            proctor_doctor({server}, areas=["lifecycle"])
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)


def test_a_server_that_does_not_start_is_not_accused() -> None:
    settings = ServerSettings(id="keyless", command=sys.executable, args=("-c", "import sys; sys.exit('an API key is required')"))
    with pytest.raises(TargetError, match=r"did not start: the server ended with exit code 1; .*an API key is required"):
        asyncio.run(examine(settings, Options()))


def test_a_silent_server_is_not_reported_as_ended() -> None:
    settings = ServerSettings(id="hangs", command=sys.executable, args=("-S", "-c", "import time; time.sleep(60)"))
    found = asyncio.run(examine(settings, Options(start_s=1.0)))
    verdicts = {each.check: (each.verdict, each.reason) for each in found.findings}
    assert verdicts["initialize"] == ("fail", "expected a result, got no response within 1 s")
    assert verdicts["tools-list"] == ("could_not_run", "no response within 1 s")
    assert verdicts["stdio-shutdown"] == ("advice", "it needed SIGTERM") and not found.notes


def test_the_request_on_which_a_server_ended_is_shown_and_its_last_words_once() -> None:
    found = look("stdio-stays", timeout_s=2.0)
    (failure,) = [each for each in found.findings if each.verdict == "fail"][:1]
    assert failure.check == "stdio-stays" and failure.evidence[0].direction == "sent"
    assert not [each.reason for each in found.findings if each.verdict == "could_not_run" and "standard error" in each.reason]


def test_an_address_where_nothing_listens_is_not_accused() -> None:
    with pytest.raises(TargetError, match=r"is not there: .* cannot be reached"):
        asyncio.run(examine(ServerSettings(id="gone", transport="http", url="http://127.0.0.1:9/mcp"), Options()))


def test_a_call_of_a_missing_tool_is_a_mistake_and_no_interruption(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = tmp_path / "calls.yaml"
    calls.write_text("calls: [{tool: find_ordr}]", encoding="utf-8")
    assert run(["doctor", COMMAND, "--calls", str(calls), "--profile", "mcp-2025-11-25@1", "--home", str(tmp_path)]) == 4
    assert "the server has no tool 'find_ordr'; nearest: find_order" in capsys.readouterr().err
