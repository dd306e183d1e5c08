"""The judges of traces: that of their project, else that of the workspace of the service.

A project's settings and secrets are read again every few seconds. A judge that cannot be opened is one that answers with the reason.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence

import msgspec
import sqlalchemy as sa

from proctor.actions.judging.judge_settings import JudgeSection
from proctor.actions.judging.judges import JudgeSource, OpenedJudge, open_home_judge, open_judge
from proctor.cassettes.ports import Tape
from proctor.errors import InputError, SpecError
from proctor.formats.text.references import References
from proctor.formats.workspace_file import Section, Workspace, build_workspace
from proctor.model.evidence import Json
from proctor.model.judgement import Opinion, Question
from proctor.runner.ports import Judge
from proctor.service.access.secrets import read_secrets
from proctor.service.hub import Hub
from proctor.service.judge_memory import get_folder
from proctor.service.refusals import Refusal
from proctor.service.settings import ServiceSettings
from proctor.service.suites.outbound import Outbound, ProjectSecrets, check_wait
from proctor.store.sql.compressed_json import to_json
from proctor.store.sql.tables import projects

FRESH_S = 5.0
"""Seconds for which the settings of a project are not read again."""
_LOG = logging.getLogger("proctor.serve")


def open_workspace_judge(hub: Hub, environment: Mapping[str, str]) -> Judge | None:
    """Return the judge of the workspace, if it is usable."""
    try:
        opened = open_home_judge(hub.settings.home, environment)
    except InputError as error:
        _LOG.warning("the judge is unavailable; assertions that need one will be errors", extra={"error": str(error)})
        return None
    if opened is None:
        return None
    if opened.warning is not None:
        _LOG.warning("%s", opened.warning)
    return opened.judge


class _UnusableJudge:
    """Answers every question with the reason why there is no judge."""

    def __init__(self, reason: str) -> None:
        self._opinion = Opinion(outcome="error", code="judge_error", reason=reason)

    async def judge(self, questions: Sequence[Question], *, case: str, attempt: int, tape: Tape) -> Sequence[Opinion]:
        return [self._opinion] * len(questions)

    async def close(self) -> None:
        """Nothing is open."""


class _Known(msgspec.Struct):
    """The judge of a project, what it was made from, and when that was read."""

    judge: Judge | None
    made_from: bytes
    read_at: float


class TraceJudges:
    """Finds the judge of a trace. `given` decides for every project instead, and is closed by the caller."""

    def __init__(self, hub: Hub, fixed_judge: Judge | None = None) -> None:
        self._hub = hub
        self._given = fixed_judge
        self._workspace = None if fixed_judge is not None else open_workspace_judge(hub, os.environ)
        self._known: dict[str, _Known] = {}
        self._opened: list[Judge] = [] if self._workspace is None else [self._workspace]

    async def find(self, organization_id: str, project_id: str) -> Judge | None:
        """Return the judge of a project, or None."""
        if self._given is not None:
            return self._given
        known, now = self._known.get(project_id), self._hub.clock()
        if known is not None and 0 <= now - known.read_at < FRESH_S:
            return known.judge
        async with self._hub.database.reading() as connection:
            settings: Json = (await connection.execute(sa.select(projects.c.settings).where(projects.c.id == project_id))).scalar()
        if not isinstance(settings, dict) or not settings.get("judge"):
            self._known[project_id] = _Known(self._workspace, b"", now)
            return self._workspace
        try:
            secrets = await read_secrets(self._hub, organization_id, project_id)
        except Refusal as refusal:
            return _UnusableJudge(f"the judge of the project cannot be used: {refusal.message}")
        made_from = to_json([settings, secrets])
        if known is None or known.made_from != made_from:
            # The one before may still be judging: it is closed at the end.
            known = _Known(self._open(project_id, settings, secrets), made_from, now)
        known.read_at = now
        self._known[project_id] = known
        return known.judge

    async def close(self) -> None:
        """Close every judge that was opened here."""
        for judge in self._opened:
            await judge.close()

    def _open(self, project_id: str, settings: dict[str, Json], secrets: Mapping[str, str]) -> Judge | None:
        try:
            opened = open_project_judge(self._hub.settings, project_id, build_workspace(settings), secrets, plain=True)
        except InputError as error:
            return _UnusableJudge(f"the judge of the project cannot be used: {error}")
        if opened is None:
            return self._workspace
        self._opened.append(opened.judge)
        return opened.judge


# The judge of a project, for its runs and its traces: from its settings, with its secrets, within limits.
# The judge of the workspace of the service is unrestricted.

MOST_OF_A_JUDGE = {"samples": 25, "model": 10, "concurrency": 64, "retries": 10}
"""Limits of a judge of a suite or project; `model` is their number. The judge of the workspace is unlimited."""


def open_project_judge(
    settings: ServiceSettings, project_id: str, workspace: Workspace, secrets: Mapping[str, str], *, plain: bool
) -> OpenedJudge | None:
    """Return the judge that a suite or project names; None if it names none. Raises `InputError`."""
    if workspace.judge is None:
        return None
    for key in ("prompt", "examples"):
        if workspace.judge.node.get(key) is not None:
            raise InputError(f"judge: `{key}` names a file, which a sent suite cannot have")
    references = ProjectSecrets(secrets)
    _check_judge(workspace, workspace.judge, references)
    source = JudgeSource(
        workspace=workspace,
        references=references,
        environment=secrets,
        # Its own cache, so that projects do not share replies.
        home=get_folder(settings.home, project_id),
        transport=Outbound(settings).model_transport,
    )
    return open_judge(None, source, plain=plain)


def _check_judge(workspace: Workspace, section: Section, references: References) -> None:
    try:
        judge = section.build(JudgeSection, references, "judge")
    except SpecError as error:
        raise section.refusal_error(error) from None
    for field, most in MOST_OF_A_JUDGE.items():
        value = len(judge.model) if field == "model" else getattr(judge, field)
        if value > most:
            raise InputError(f"judge: {field}: expected at most {most}, found {value} on the service")
    check_wait(judge.timeout_s, "judge", field="judge")
    for name in judge.model:
        waited = workspace.models[name].node.get("timeout_s") if name in workspace.models else None
        check_wait(waited.value if waited is not None else None, f"model {name!r}", field="judge")
