"""Cases drafted from one answer."""

from __future__ import annotations

from pathlib import Path

from proctor.actions.checking.draft_case import save_case
from proctor.model.evidence import Evidence, ToolCall


def test_a_lone_surrogate_in_an_answer_can_be_saved(tmp_path: Path) -> None:
    calls = (ToolCall(name="look", arguments={"for": "x\ud83d"}), ToolCall(name="find", arguments={"id": 7}))
    saved = save_case(tmp_path / "suite.yaml", "hi\ud83d", Evidence(case=None, text="a\ud83d", tool_calls=calls))
    text = saved.path.read_text(encoding="utf-8")
    assert "{tool_called: look}" in text, "claimed without what no suite can hold"
    assert "id: 7" in text
