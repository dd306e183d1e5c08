"""Live tests are distributed so that no file makes all workers wait."""

from __future__ import annotations

from pathlib import Path

from tests.schedule import BY_DATABASE, BY_FIXTURE, BY_NAME, PARTS, TOGETHER, find_group

ROOT = Path(__file__).parents[1]


def test_tests_with_servers_of_their_own_are_taken_one_by_one() -> None:
    assert find_group("tests/live/crashes/test_signals.py::test_a[1]") != find_group("tests/live/crashes/test_signals.py::test_a[2]")


def test_tests_sharing_a_browser_or_a_database_stay_together() -> None:
    for file in (*TOGETHER, "tests/store/test_pages.py"):
        assert find_group(f"{file}::test_a") == find_group(f"{file}::test_b") == file


def test_the_tests_of_one_framework_stay_together() -> None:
    (file,) = BY_NAME
    assert find_group(f"{file}::test_a[crewai]") == find_group(f"{file}::test_b[crewai]") != find_group(f"{file}::test_b[agno]")


def test_the_tests_of_a_service_on_one_database_stay_together() -> None:
    for file in BY_DATABASE:
        assert find_group(f"{file}::test_a[sqlite]") == find_group(f"{file}::test_b[sqlite]") != find_group(f"{file}::test_b[postgresql]")
        assert find_group(f"{file}::test_a") == find_group(f"{file}::test_b") != find_group(f"{file}::test_b[sqlite]")


def test_the_tests_of_a_shared_service_stay_together_and_those_that_end_theirs_do_not() -> None:
    for file, words in BY_FIXTURE.items():
        assert {find_group(f"{file}::test_{word}_{number}") for word in words for number in range(2)} == {file}
        assert find_group(f"{file}::test_stops[1]") != find_group(f"{file}::test_stops[2]")
        assert all(f"{word}(" in (ROOT / file).read_text(encoding="utf-8") for word in words), "no test has that in its name"


def test_hundreds_of_requests_are_divided_into_parts() -> None:
    (file,) = PARTS
    groups = [find_group(f"{file}::test_generated[GET /api/{number}]") for number in range(300)]
    assert len(set(groups)) == PARTS[file] and min(groups.count(group) for group in set(groups)) > 60


def test_the_files_are_there() -> None:
    assert all((ROOT / file).exists() for file in (*TOGETHER, *BY_DATABASE, *BY_NAME, *BY_FIXTURE, *PARTS))
