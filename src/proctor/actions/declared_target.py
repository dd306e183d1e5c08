"""The key `evidence` of a target: parts of what is observed of the agent that the author declares complete."""

from __future__ import annotations

from proctor.actions.driven_target import DrivenTarget
from proctor.cassettes.ports import Tape
from proctor.evidence.unknowns.account import declare_complete
from proctor.formats.located import Located
from proctor.formats.workspace import Section
from proctor.model.attempt import Attempt
from proctor.model.evidence import Evidence
from proctor.model.mapping import DeclaredEvidence, EvidenceSettings
from proctor.runner.ports import Target


class CompletedTarget(DrivenTarget):
    """Drives another target, whose evidence is complete in the parts that are declared."""

    def __init__(self, target: Target, declared: DeclaredEvidence) -> None:
        super().__init__(target)
        self._declared = declared

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Drive the target."""
        evidence = await super().run(attempt, tape)
        return declare_complete(evidence, self._declared.complete, self._declared.source)


def take_declared(section: Section, name: str) -> tuple[DeclaredEvidence | None, Section]:
    """Return what a target declares under `evidence`, and its other settings. Raises `InputError` for what cannot be used.

    A target over HTTP reads the mapping itself. Recordings have `evidence` for the files they are in.
    """
    node = section.node.get("evidence")
    kind = section.find_text("type")
    if node is None or kind == "recorded":
        return None, section
    settings = section.with_node(node, lambda placed: placed.get("evidence")).check(EvidenceSettings, f"target {name!r}: evidence")
    place = f"{section.file}:{node.line}" if section.file is not None and node.line else f"target {name!r}"
    if kind == "http":
        return DeclaredEvidence(complete=settings.complete, source=place), section
    if settings.map is not None:
        raise section.unknown_member_error("evidence", f"target {name!r}: `evidence.map` is for targets of type http", ())
    return DeclaredEvidence(complete=settings.complete, source=place), section.with_node(_drop(section.node), _drop)


def _drop(node: Located) -> Located:
    members = {key: member for key, member in node.members() if key != "evidence"}
    return Located(value=members, line=node.line, column=node.column, path=node.path, key_at=node.key_at)
