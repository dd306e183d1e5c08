"""The drop of files."""

from __future__ import annotations

import pytest

from proctor.errors import SpecError
from proctor.model.evidence import StateFile
from proctor.simulators.kinds.files import MOST_BYTES
from tests.simulators.workplace import Workplace, refusal


@pytest.fixture
def drop() -> Workplace:
    return Workplace("files", {"inbox/referral.json": {"id": 17}, "archive/old.txt": "old"})


def test_a_file_is_written_read_replaced_and_deleted(drop: Workplace) -> None:
    assert drop.ask("PUT", "/outbox/a%20b.txt", "grüß".encode()).status == 201
    assert drop.ask("GET", "/outbox/a%20b.txt").body == "grüß".encode()
    assert drop.ask("PUT", "/outbox/a%20b.txt", b"2", content_type="text/csv").status == 204
    assert drop.ask("GET", "/outbox/a%20b.txt").headers["content-type"] == "text/csv"
    assert drop.ask("DELETE", "/outbox/a%20b.txt").status == 204
    assert refusal(drop.ask("GET", "/outbox/a%20b.txt")) == (404, "not_found")
    assert refusal(drop.ask("DELETE", "/outbox/a%20b.txt")) == (404, "not_found")


def test_binary_content_is_returned_unchanged(drop: Workplace) -> None:
    drop.ask("PUT", "/scan.pdf", b"%PDF\xff\x00")
    assert drop.ask("GET", "/scan.pdf").body == b"%PDF\xff\x00"
    assert (drop.state().files or ())[-1] == StateFile(path="scan.pdf", content="data:application/octet-stream;base64,JVBERv8A")


def test_the_state_is_every_file_with_its_content(drop: Workplace) -> None:
    assert drop.state().files == (
        StateFile(path="inbox/referral.json", content='{"id":17}'),
        StateFile(path="archive/old.txt", content="old"),
    )


@pytest.mark.parametrize("target", ["/inbox", "/inbox/", "/?prefix=inbox/"])
def test_the_inbox_is_listed(drop: Workplace, target: str) -> None:
    assert [file["path"] for file in drop.get(target)["files"]] == ["inbox/referral.json"]


def test_everything_is_listed(drop: Workplace) -> None:
    assert [(file["path"], file["size"]) for file in drop.get("/")["files"]] == [("inbox/referral.json", 9), ("archive/old.txt", 3)]


@pytest.mark.parametrize(
    "path",
    ["/../etc/passwd", "/a/../../b", "/%2e%2e/b", "/a/%2E%2E/b", "/a//b", "/./a", "/a%00b", "/a%5Cb", "/", "/a/", "/" + "x" * 1001],
)
def test_paths_that_leave_the_drop_are_refused(drop: Workplace, path: str) -> None:
    assert refusal(drop.ask("PUT", path, b"x")) == (400, "bad_path")
    assert drop.state().changes == ()


def test_a_file_beyond_50_mb_is_refused(drop: Workplace) -> None:
    assert refusal(drop.ask("PUT", "/big", b"x" * (MOST_BYTES + 1))) == (413, "too_large")
    assert drop.state().changes == ()


def test_other_methods_are_refused(drop: Workplace) -> None:
    assert refusal(drop.ask("POST", "/a", b"")) == (405, "method_not_allowed")


def test_a_file_is_moved_over_another_one_and_nothing_is_lost(drop: Workplace) -> None:
    assert refusal(drop.ask("MOVE", "/inbox/none?to=b")) == (404, "not_found")
    assert refusal(drop.ask("MOVE", "/archive/old.txt?to=../b")) == (400, "bad_path")
    assert refusal(drop.ask("MOVE", "/archive/old.txt")) == (400, "bad_path")
    assert drop.ask("MOVE", "/archive/old.txt?to=inbox/referral.json").status == 204
    assert drop.ask("MOVE", "/inbox/referral.json?to=a").status == 201
    assert drop.state().files == (StateFile(path="a", content="old"),)


@pytest.mark.parametrize("given", ["yes", "true", 1, {}])
def test_sftp_is_optional_and_never_a_file(given: object) -> None:
    assert Workplace("files", {"sftp": True}).state().files == ()
    with pytest.raises(SpecError, match="expected true or false") as caught:
        Workplace("files", {"sftp": given})
    assert caught.value.field == "files.seed.sftp"
