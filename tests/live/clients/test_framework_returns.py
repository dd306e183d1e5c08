"""What agents of real frameworks return, against what really happened: plain, as streams, over several turns, with errors.

Each framework runs in a separate environment (`tests/frameworks/returns/`), and the recorded evidence is compared with the text of the
scripted model and of the tools. `tests/frameworks/returns.yaml` lists what is recorded of every case, and what is reported unknown.
`make test-live` drives those that install in seconds, `make framework-pages` all of them.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.frameworks.returns.compare import summarise
from tests.live.clients.test_framework_pages import ALL, KNOWN, ROOT, install, list_driven, variables

TABLE = yaml.load((ROOT / "tests/frameworks/returns.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]


def test_every_framework_with_a_guide_is_driven() -> None:
    assert set(TABLE) == set(KNOWN)


if ALL:  # nothing else needs dspy

    def test_the_figures_of_token_f1_are_those_of_dspy(tmp_path: Path) -> None:
        table = ROOT / "tests/checks/cases/token_f1.json"
        rows = json.loads(table.read_text(encoding="utf-8"))["rows"]
        code = (
            "import json, sys; from dspy.evaluate.metrics import f1_score;"
            "rows = json.load(open(sys.argv[1], encoding='utf-8'))['rows'];"
            "json.dump([f1_score(actual, expected) for expected, actual, _ in rows], open(sys.argv[2], 'w'))"
        )
        subprocess.run([install("dspy"), "-c", code, table, tmp_path / "found.json"], env=variables("", tmp_path), check=True, timeout=300)
        found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
        assert found == pytest.approx([row[2] for row in rows], abs=1e-9)


@pytest.mark.in_turn
@pytest.mark.parametrize("name", list_driven(KNOWN))
def test_recorded_evidence_matches_what_happened(name: str, tmp_path: Path) -> None:
    python, found = install(name), tmp_path / "found.json"
    done = subprocess.run(
        [python, "-m", "tests.frameworks.returns.drive", f"{name.replace('-', '_')}_agents", found],
        cwd=tmp_path,
        env={**variables("", tmp_path), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    cases = json.loads(found.read_text(encoding="utf-8"))
    assert {id: summarise(case) for id, case in cases.items()} == {id: row or {} for id, row in TABLE[name].items()}
