"""Rows of Parquet, Excel and saved data sets, with the place of each."""

from __future__ import annotations

import datetime
import inspect
import json
import os
import subprocess
import sys
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import proctor
from proctor.formats.text.row_shapes import Row, TableOptions
from proctor.sources.scratch_files import FilePieces
from proctor.sources.tables.open import DataFiles

TABLE = pa.table({"q": ["a", "b", "c"], "n": [1, None, 3], "when": [datetime.date(2026, 11, 16)] * 3, "inner": [{"x": [1.5]}] * 3})


def read(folder: Path, name: str, **options: object) -> list[Row]:
    return list(DataFiles(folder).open(name, TableOptions(**options)).rows())  # type: ignore[arg-type]


def test_parquet_keeps_types_and_the_numbers_of_rows(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "rows.parquet", row_group_size=2)
    found = read(tmp_path, "rows.parquet")
    assert found[1].values == {"q": "b", "n": None, "when": "2026-11-16", "inner": {"x": [1.5]}}
    assert [(row.origin.line, row.origin.path) for row in found] == [(1, "row 1"), (2, "row 2"), (3, "row 3")]
    assert len(read(tmp_path, "rows.parquet", limit=2)) == 2


def test_only_selected_columns_must_be_values(tmp_path: Path) -> None:
    pq.write_table(pa.table({"q": ["a"], "picture": [b"\xff"], "price": [Decimal("1.10")]}), tmp_path / "rows.parquet")
    table = DataFiles(tmp_path).open("rows.parquet", TableOptions())
    table.choose_columns(["q", "price"])
    assert [row.values for row in table.rows()] == [{"q": "a", "price": "1.10"}]
    with pytest.raises(proctor.InputError, match=r"rows\.parquet:1: column 'picture': bytes is no value"):
        read(tmp_path, "rows.parquet")


@pytest.mark.parametrize("name", ["rows.parquet", "rows.xlsx"])
def test_a_file_of_another_kind_is_refused(name: str, tmp_path: Path) -> None:
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


def test_a_sheet_has_its_name_and_row_numbers(tmp_path: Path) -> None:
    make_sheet(tmp_path / "rows.xlsx")
    found = read(tmp_path, "rows.xlsx")
    assert [row.values for row in found] == [{"q": "a", "n": 1}, {"q": "b", "n": 2.5}, {"q": "", "n": "2026-11-16T09:30:00"}]
    assert [(row.origin.line, row.origin.path) for row in found][1] == (4, "sheet 'Orders', row 4")
    with pytest.raises(proctor.InputError, match="there is no sheet 'Order'; nearest: 'Orders'"):
        read(tmp_path, "rows.xlsx", sheet="Order")
    with pytest.raises(proctor.InputError, match=r"rows\.xlsx:2: the cell A2 shows the error #N/A"):
        read(tmp_path, "rows.xlsx", sheet="Broken")


def make_shared(path: Path, texts: list[str], index: int | None = None) -> None:
    """A sheet as Excel writes it: its texts in a table of their own, each in two runs; `index` is the number in the last cell."""
    make_sheet(path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    items = "".join(f"<si><r><t>{text[:1]}</t></r><r><t xml:space='preserve'>{text[1:]}</t></r></si>" for text in texts)
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    parts["xl/sharedStrings.xml"] = f"<sst xmlns='{space}' count='{len(texts)}'>{items}</sst>".encode()
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
    listed = parts["[Content_Types].xml"].decode()
    if kind not in listed:
        listed = listed.replace("</Types>", f'<Override PartName="/xl/sharedStrings.xml" ContentType="{kind}"/></Types>')
    parts["[Content_Types].xml"] = listed.encode()
    cells = [*range(len(texts) - 1), len(texts) - 1 if index is None else index]
    rows = "".join(f"<row r='{n}'><c r='A{n}' t='s'><v>{cell}</v></c></row>" for n, cell in enumerate(cells, 1))
    parts["xl/worksheets/sheet1.xml"] = f"<worksheet xmlns='{space}'><sheetData>{rows}</sheetData></worksheet>".encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


def test_shared_strings_of_excel_belong_to_their_cells(tmp_path: Path) -> None:
    texts = ["question", "Wo ist \u00fc?", " two  spaces ", "x" * 3000, "\U0001f600"]
    make_shared(tmp_path / "rows.xlsx", texts)
    whole = openpyxl.load_workbook(tmp_path / "rows.xlsx")["Orders"]
    assert [row.values["question"] for row in read(tmp_path, "rows.xlsx")] == texts[1:] == [cell.value for cell in whole["A"][1:]]


@pytest.mark.parametrize("index", [-1, 99])
def test_a_cell_with_a_missing_text_is_refused(tmp_path: Path, index: int) -> None:
    make_shared(tmp_path / "rows.xlsx", ["q", "a", "b"], index)
    with pytest.raises(proctor.InputError, match=r"rows\.xlsx: this Excel file cannot be read further"):
        read(tmp_path, "rows.xlsx")


def test_a_sheet_is_read_row_by_row_and_again_from_the_first(tmp_path: Path) -> None:
    make_sheet(tmp_path / "rows.xlsx")
    table = DataFiles(tmp_path).open("rows.xlsx", TableOptions(sheet="Orders"))
    rows = table.rows()
    assert next(rows).values == {"q": "a", "n": 1} and len(list(rows)) == 2 == len(list(table.rows())) - 1
    assert inspect.isgenerator(table.rows())


def test_a_sheet_that_unpacks_to_too_much_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.sources.tables.excel.MAX_UNPACKED", 1000)
    with zipfile.ZipFile(tmp_path / "rows.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", " " * 100_000)
    with pytest.raises(proctor.InputError, match="when unpacked; the limit is"):
        read(tmp_path, "rows.xlsx")


def save_to_disk(folder: Path, name: str = "data-00000-of-00001.arrow", table: Any = TABLE) -> None:
    """A folder written by `save_to_disk` of the library `datasets`."""
    folder.mkdir(parents=True)
    with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}], "_split": None, "_indices_data_files": None}))
    (folder / "dataset_info.json").write_text("{}")


def test_a_saved_data_set_is_read(tmp_path: Path) -> None:
    save_to_disk(tmp_path / "set")
    found = read(tmp_path, "set")
    assert [row.values["q"] for row in found] == ["a", "b", "c"]
    assert (found[2].origin.file or "").endswith("set/data-00000-of-00001.arrow") and found[2].origin.line == 3


def test_one_of_several_splits_must_be_named(tmp_path: Path) -> None:
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
def test_a_data_set_names_only_files_in_its_folder(name: str, tmp_path: Path) -> None:
    save_to_disk(tmp_path / "set")
    (tmp_path / "set" / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    with pytest.raises(proctor.InputError, match="not the name of a file in its folder"):
        read(tmp_path, "set")


def test_a_spool_returns_its_pieces_unchanged() -> None:
    spool = FilePieces()
    pieces = [f"é{number}".encode() * number for number in range(3)]
    for piece in pieces:
        spool.append(piece)
    assert [spool.read(number) for number in (2, 0, 1)] == [pieces[2], pieces[0], pieces[1]]


def test_arrow_uses_the_system_allocator_and_child_processes_choose_their_own(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    look = (
        "import os; from pathlib import Path; "
        "from proctor.formats.text.row_shapes import TableOptions; from proctor.sources.tables.open import DataFiles; "
        "rows = list(DataFiles(Path()).open('rows.parquet', TableOptions()).rows()); "
        "import pyarrow; print(len(rows), pyarrow.default_memory_pool().backend_name, os.environ.get('ARROW_DEFAULT_MEMORY_POOL'))"
    )
    own = {key: value for key, value in os.environ.items() if key != "ARROW_DEFAULT_MEMORY_POOL"} | {
        "PYTHONPATH": os.pathsep.join(sys.path)
    }
    for chosen, output in (({}, "3 system None"), ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "3 mimalloc mimalloc")):
        done = subprocess.run([sys.executable, "-c", look], cwd=tmp_path, env=own | chosen, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == output


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([0, 10**18], pa.timestamp("us")), "rows.parquet:2: column 'x': "),
        (pa.array([0, 1_700_000_000_123_456_789], pa.timestamp("ns")), "rows.parquet:2: column 'x': Nanosecond"),
        (pa.array(["", "y" * 1_000_001]), "rows.parquet:2: column 'x' has 1,000,001 characters; the limit is 1,000,000"),
    ],
    ids=["a year beyond 9999", "nanoseconds", "a long text"],
)
@pytest.mark.parametrize("saved", [False, True], ids=["parquet", "arrow"])
def test_an_unreadable_cell_is_reported_with_row_and_column(column: Any, message: str, saved: bool, tmp_path: Path) -> None:
    table = pa.table({"q": ["a", "b"], "x": column})
    if saved:
        save_to_disk(tmp_path / "set", table=table)
        name, message = "set", message.replace("rows.parquet", "set/data-00000-of-00001.arrow")
    else:
        pq.write_table(table, tmp_path / "rows.parquet")
        name = "rows.parquet"
    with pytest.raises(proctor.InputError) as caught:
        read(tmp_path, name)
    assert message in str(caught.value)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["q", "q"]), tmp_path / "rows.parquet")
    with pytest.raises(proctor.InputError, match=r"rows\.parquet: two columns are called 'q'"):
        read(tmp_path, "rows.parquet")
