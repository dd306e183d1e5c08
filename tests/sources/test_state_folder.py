"""State in a folder: the files that are read, and the files that are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.sources.state_folder import read_state_folder


def test_a_completely_read_folder_is_known(tmp_path: Path) -> None:
    (tmp_path / "hl7").mkdir()
    (tmp_path / "hl7" / "1.hl7").write_text("MSH|1")
    (tmp_path / "hl7" / ".gitkeep").touch()
    evidence = read_state_folder(tmp_path)
    assert evidence.account is None
    assert evidence.state is not None and evidence.state.hl7 is not None
    assert evidence.state.hl7.outbound == ("MSH|1",)


@pytest.mark.parametrize(("family", "name"), [("fhir", "claim.xml"), ("hl7", "1.hl8"), ("x12", "a.dat"), ("voice", "call.mp3")])
def test_an_unread_file_makes_the_end_state_unknown(tmp_path: Path, family: str, name: str) -> None:
    (tmp_path / family).mkdir()
    (tmp_path / family / name).write_text("x")
    account = read_state_folder(tmp_path).account
    assert account is not None
    assert account.unknown == {"state": f"{family}/{name} was not read"}


def test_a_link_is_not_followed_and_is_reported(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "report.txt").symlink_to("/etc/hostname")
    evidence = read_state_folder(tmp_path)
    assert evidence.state is not None and evidence.state.files == ()
    assert evidence.account is not None
    assert evidence.account.unknown == {"state": "files/report.txt was not read"}
