"""Opens an Excel file whose texts stay on the disk.

Excel keeps every text of a workbook once, in a table of its own, and cells hold numbers into it. `openpyxl` reads that table into memory
whole, also where it reads rows one by one; here it goes to a temporary file without a name, and a cell fetches its text from there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proctor.sources.scratch_files import FileTexts


class SheetTexts(FileTexts):
    """The texts of a workbook, in the order in which they stand there."""

    def __getitem__(self, index: int, /) -> str:
        """Return a text by its number from 0; raises `IndexError` where there is none."""
        if not 0 <= index < len(self):
            raise IndexError(f"a cell has the text {index} of {len(self)}")
        return super().__getitem__(index)


def load_workbook(path: Path) -> Any:
    """Return a workbook of `openpyxl` that is read row by row. Raises what `openpyxl` raises, and `ImportError` without it."""
    from openpyxl.cell.text import Text  # an optional part
    from openpyxl.reader.excel import ExcelReader
    from openpyxl.xml.constants import SHARED_STRINGS, SHEET_MAIN_NS
    from openpyxl.xml.functions import iterparse

    class Reader(ExcelReader):  # pyright: ignore[reportUntypedBaseClass]
        """Puts the texts aside."""

        def read_strings(self) -> None:
            """Read the table of texts."""
            part: Any = self.package.find(SHARED_STRINGS)
            if part is None:
                return
            self.shared_strings: Any = SheetTexts()
            root: Any = None
            with self.archive.open(part.PartName[1:]) as source:
                for event, node in iterparse(source, events=("start", "end")):
                    root = node if root is None else root
                    if event == "end" and node.tag == f"{{{SHEET_MAIN_NS}}}si":
                        # As `openpyxl` reads it: the mark of an escaped underscore is no part of the text.
                        text: Any = Text.from_tree(node)
                        self.shared_strings.append(str(text.content).replace("x005F_", ""))
                        # Else the tree would grow to the whole table, which is what this reader avoids.
                        root.clear()

    reader = Reader(path, read_only=True, data_only=True, keep_links=False)
    reader.read()
    return reader.wb
