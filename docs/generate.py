"""Write the generated documentation: `python -m docs.generate`, or `make docs`.

Two kinds of page. A *whole* page is written from the code and begins with a line that says so. A *mixed* page is written by
hand except for the blocks between `<!-- generated: NAME -->` and `<!-- end generated -->`. `pages()` gives both as text and
writes nothing, so that a test can compare it with the files.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from docs import (
    architecture_table,
    batch_costs,
    doctor_page,
    fidelity_rows,
    framework_table,
    limits_table,
    mcp_pages,
    python_names,
    reference_pages,
    service_pages,
    simulator_pages,
    verification_pages,
)

HERE = Path(__file__).parent

WHOLE: dict[str, Callable[[], str]] = {
    "reference/checks.md": reference_pages.checks_page,
    "reference/matchers.md": reference_pages.matchers_page,
    "reference/functions.md": reference_pages.functions_page,
    "reference/command-line.md": reference_pages.command_line_page,
    "reference/native-schema.json": reference_pages.native_schema_text,
    "reference/doctor.md": doctor_page.checks_page,
    "reference/rest.md": service_pages.rest_page,
    "reference/mcp.md": mcp_pages.mcp_page,
    "reference/verification.md": verification_pages.verification_page,
    "reference/service-settings.md": service_pages.settings_page,
    "reference/simulator-kinds.md": simulator_pages.kinds_page,
    "../src/proctor/__init__.pyi": python_names.stub_text,
    "../src/proctor/mcp_server/lists.json": mcp_pages.lists_text,
}
"""Pages written from the code alone, by their path under `docs/`; and files of the package: its stub, and what the MCP server lists."""

MIXED: dict[str, dict[str, Callable[[], str]]] = {
    "reference/evidence.md": {"evidence fields": reference_pages.evidence_fields, "evidence formats": reference_pages.evidence_formats},
    "reference/native-format.md": {
        "assertion keys": reference_pages.assertion_keys,
        "checks in one line each": reference_pages.checks_in_short,
    },
    "reference/frameworks.md": {"frameworks": framework_table.table},
    "reference/python.md": python_names.group_tables(),
    "explanation/batches.md": {"measured": batch_costs.measured_line, "costs": batch_costs.costs_table, "kinds": batch_costs.kinds_table},
    "explanation/safety.md": {"limits": limits_table.limits_table},
    "../design/architecture.md": {
        "layers": architecture_table.layers_table,
        "same_layer": architecture_table.same_layer_list,
        "subpackages": architecture_table.subpackages_table,
    },
    "explanation/fidelity.md": {"differences": fidelity_rows.differences},
}
"""Pages written by hand with generated blocks in them."""

_BLOCK = re.compile(r"(<!-- generated: (?P<name>[^>]*?) -->\n).*?(<!-- end generated -->)", re.DOTALL)


def pages() -> dict[str, str]:
    """Every page with something generated in it, by its path under `docs/`, as it should be."""
    texts = {path: make() for path, make in WHOLE.items()}
    for path, blocks in MIXED.items():
        texts[path] = filled((HERE / path).read_text(encoding="utf-8"), blocks, path)
    return texts


def filled(text: str, blocks: dict[str, Callable[[], str]], path: str) -> str:
    """The page with each of its blocks rewritten; a block without a writer, or a page without its block, is an error."""
    found = [match["name"] for match in _BLOCK.finditer(text)]
    if sorted(found) != sorted(blocks):
        raise ValueError(f"docs/{path}: has the generated blocks {found}, expected {list(blocks)}")
    return _BLOCK.sub(lambda match: f"{match[1]}\n{blocks[match['name']]().strip()}\n\n{match[3]}", text)


def main() -> int:
    """Write what changed; says which pages those were."""
    # What a plugin of this machine adds does not belong in our pages.
    os.environ["PROCTOR_DISABLE_PLUGINS"] = "1"
    written = 0
    for path, text in pages().items():
        place = HERE / path
        if not place.exists() or place.read_text(encoding="utf-8") != text:
            place.write_text(text, encoding="utf-8")
            written += 1
            print(f"wrote docs/{path}")
    complaints = fidelity_rows.complaints()
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    print(f"{written} pages written, {len(WHOLE) + len(MIXED) - written} unchanged")
    return 1 if complaints else 0


if __name__ == "__main__":
    raise SystemExit(main())
