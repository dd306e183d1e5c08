"""Rows of Parquet, Excel and saved data sets, with the place of each."""

from __future__ import annotations

import datetime
import json
import zipfile
from decimal import Decimal
from pathlib import Path

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import proctor
from proctor.formats.rows import Row, TableOptions
from proctor.model.origin import Origin
from proctor.sources.row_spool import FileSpool
from proctor.sources.tables import DataFiles

TABLE = pa.table({"q": ["a", "b", "c"], "n": [1, None, 3], "when": [datetime.date(2026, 11, 16)] * 3, "inner": [{"x": [1.5]}] * 3})


def read(folder: Path, name: str, **options: object) -> list[Row]:
    return list(DataFiles(folder).open(name, TableOptions(**options)).rows())  # type: ignore[arg-type]


def test_parquet_keeps_types_and_the_numbers_of_rows(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "rows.parquet", row_group_size=2)
    found = read(tmp_path, "rows.parquet")
    assert found[1].values == {"q": "b", "n": None, "when": "2026-11-16", "inner": {"x": [1.5]}}
    assert [(row.origin.line, row.origin.path) for row in found] == [(1, "row 1"), (2, "row 2"), (3, "row 3")]
    assert len(read(tmp_path, "rows.parquet", limit=2)) == 2


def test_only_columns_that_are_asked_for_have_to_be_values(tmp_path: Path) -> None:
    pq.write_table(pa.table({"q": ["a"], "picture": [b"\xff"], "price": [Decimal("1.10")]}), tmp_path / "rows.parquet")
    table = DataFiles(tmp_path).open("rows.parquet", TableOptions())
    table.choose_columns(["q", "price"])
    assert [row.values for row in table.rows()] == [{"q": "a", "price": "1.10"}]
    with pytest.raises(proctor.InputError, match=r"rows\.parquet:1: column 'picture': bytes is no value"):
        read(tmp_path, "rows.parquet")


@pytest.mark.parametrize("name", ["rows.parquet", "rows.xlsx"])
def test_a_file_that_is_none_of_its_kind_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"no such thing")
    with pytest.raises(proctor.InputError, match=f"{name}: no (Parquet|Excel) file that can be read"):
        read(tmp_path, name)


def make_sheet(path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "Orders"
    for row in (["q", "n", None], ["a", 1], [], ["b", 2.5], [None, datetime.datetime(2026, 11, 16, 9, 30)]):
        sheet.append(row)
    book.create_sheet("Broken").append(["q"])
    book["Broken"]["A2"] = "#N/A"
    book["Broken"]["A2"].data_type = "e"
    book.save(path)


def test_a_sheet_tells_its_name_and_the_numbers_of_its_rows(tmp_path: Path) -> None:
    make_sheet(tmp_path / "rows.xlsx")
    found = read(tmp_path, "rows.xlsx")
    assert [row.values for row in found] == [{"q": "a", "n": 1}, {"q": "b", "n": 2.5}, {"q": "", "n": "2026-11-16T09:30:00"}]
    assert [(row.origin.line, row.origin.path) for row in found][1] == (4, "sheet 'Orders', row 4")
    with pytest.raises(proctor.InputError, match="there is no sheet 'Order'; nearest: 'Orders'"):
        read(tmp_path, "rows.xlsx", sheet="Order")
    with pytest.raises(proctor.InputError, match=r"rows\.xlsx:2: the cell A2 shows the error #N/A"):
        read(tmp_path, "rows.xlsx", sheet="Broken")


def test_a_sheet_that_unpacks_to_too_much_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.sources.table_sheet.MAX_UNPACKED", 1000)
    with zipfile.ZipFile(tmp_path / "rows.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", " " * 100_000)
    with pytest.raises(proctor.InputError, match="when unpacked; the limit is"):
        read(tmp_path, "rows.xlsx")


def save_to_disk(folder: Path, name: str = "data-00000-of-00001.arrow") -> None:
    """What `save_to_disk` of the library `datasets` leaves."""
    folder.mkdir(parents=True)
    with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=2)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}], "_split": None, "_indices_data_files": None}))
    (folder / "dataset_info.json").write_text("{}")


def test_a_saved_data_set_is_read(tmp_path: Path) -> None:
    save_to_disk(tmp_path / "set")
    found = read(tmp_path, "set")
    assert [row.values["q"] for row in found] == ["a", "b", "c"]
    assert (found[2].origin.file or "").endswith("set/data-00000-of-00001.arrow") and found[2].origin.line == 3


def test_of_several_splits_one_is_named(tmp_path: Path) -> None:
    for split in ("train", "test"):
        save_to_disk(tmp_path / "set" / split)
    (tmp_path / "set" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert len(read(tmp_path, "set", split="test")) == 3
    with pytest.raises(proctor.InputError, match=r"several splits \(train, test\)"):
        read(tmp_path, "set")
    with pytest.raises(proctor.InputError, match="there is no split 'tests'; nearest: 'test'"):
        read(tmp_path, "set", split="tests")


def test_a_folder_of_parquet_files_is_one_data_set(tmp_path: Path) -> None:
    (tmp_path / "set" / "data").mkdir(parents=True)
    for number in range(2):
        pq.write_table(TABLE, tmp_path / "set" / "data" / f"train-0000{number}-of-00002.parquet")
    found = read(tmp_path, "set")
    assert len(found) == 6 and found[3].origin.line == 1


@pytest.mark.parametrize("name", ["../data.arrow", "/etc/passwd"])
def test_a_data_set_names_only_files_beside_it(name: str, tmp_path: Path) -> None:
    save_to_disk(tmp_path / "set")
    (tmp_path / "set" / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    with pytest.raises(proctor.InputError, match="no name of a file beside it"):
        read(tmp_path, "set")


def test_rows_come_back_from_a_spool_as_they_were() -> None:
    spool = FileSpool()
    rows = [Row({"q": f"é{number}", "n": number, "x": [None, 1.5]}, Origin(file="a.csv", line=number)) for number in range(3)]
    for row in rows:
        spool.append(row)
    assert [spool.read(number) for number in (2, 0, 1)] == [rows[2], rows[0], rows[1]]
