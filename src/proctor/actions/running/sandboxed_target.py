"""A target whose cases work in simulated systems: every try of an attempt gets a fresh sandbox, and its end state becomes evidence.

The agent finds its systems by variables of the case: for a system `clinic`, `clinic_url` and `clinic_token`. They are in the context of
the case, and replace `{clinic_url}` in a message. A target that gives its model tools also offers those of the systems. The content of
the systems after the answer is the state that checks read, together with every request and every change.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping

import msgspec

from proctor.actions.running.named_target import DrivenTarget
from proctor.cassettes.ports import Tape
from proctor.errors import MissingExtra, SpecError, TargetError
from proctor.model.account import Account
from proctor.model.attempt import Attempt, OwnTool
from proctor.model.case import Case, System
from proctor.model.evidence import Evidence, Json
from proctor.runner.ports import Target
from proctor.sandboxes.server import LoopbackServer, make_moment
from proctor.simulators.ports import Surroundings
from proctor.simulators.rows import MemoryStore, Rows
from proctor.simulators.sandbox import Sandbox, provision_rows

AROUND = Surroundings(now=make_moment, new_id=lambda: secrets.token_hex(8), seconds=time.perf_counter)
_MOST_PREPARED = 100
"""Datasets whose rows are cached for further attempts; cases from data files may have very many."""


class SystemTools:
    """The tools of the systems of one attempt, for a model."""

    def __init__(self, server: LoopbackServer, sandbox: Sandbox) -> None:
        self._server = server
        self._sandbox = sandbox

    def list_tools(self) -> dict[str, tuple[OwnTool, ...]]:
        """Return the tools by the name of their system."""
        return {
            name: tuple(OwnTool(name=tool.name, description=tool.description, schema=tool.schema) for tool in tools)
            for name, tools in self._sandbox.list_tools().items()
        }

    async def call_tool(self, system: str, tool: str, arguments: dict[str, Json]) -> dict[str, Json]:
        """Call a tool of a system, in a thread like requests over HTTP."""
        return await asyncio.to_thread(self._server.call_tool, self._sandbox, system, tool, arguments)


class SandboxedTarget(DrivenTarget):
    """Drives another target, with a sandbox for each try."""

    has_systems = True

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._server = LoopbackServer()
        self._store = MemoryStore()
        self._prepared: dict[int, tuple[tuple[System, ...], Rows]] = {}

    async def open(self) -> None:
        """Serve sandboxes, and connect the target."""
        try:
            self._server.open()
        except OSError as error:
            raise TargetError(f"the simulated systems cannot be served on loopback: {error}", code="no_sandbox") from error
        try:
            # The run does not close a target that failed to open, so the server would keep running.
            await self.driven.open()
        except BaseException:
            self._server.close()
            raise

    async def close(self) -> None:
        """Stop the server, and close the target."""
        try:
            await self.driven.close()
        finally:
            self._server.close()

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Drive the target in a new sandbox, and add the state of the systems to its evidence."""
        systems = attempt.case.systems
        if not systems:
            return await self.driven.run(attempt, tape)
        sandbox = Sandbox(secrets.token_hex(12), systems, self._store, AROUND)
        await sandbox.provision(self._prepare(systems))
        names = tuple(system.name for system in systems)
        try:
            mllp = tuple(system.name for system in systems if system.wants_mllp)
            place = self._server.add(sandbox, names, mllp=mllp, sftp=tuple(system.name for system in systems if system.wants_sftp))
        except (OSError, MissingExtra) as error:
            await sandbox.remove()
            raise TargetError(f"the simulated systems cannot be served on loopback: {error}", code="no_sandbox") from error
        try:
            case = fill_case(attempt.case, place.find_variables(names))
            try:
                tools = SystemTools(self._server, sandbox)
                evidence = await self.driven.run(msgspec.structs.replace(attempt, case=case, tools=tools), tape)
            except TargetError as error:
                self._server.remove(sandbox)
                # Read when it can no longer change.
                if error.evidence is not None:
                    error.evidence = await _add_state(error.evidence, sandbox)
                raise
            # Requests after the end state are rejected.
            self._server.remove(sandbox)
            return await _add_state(evidence, sandbox)
        finally:
            self._server.remove(sandbox)
            await sandbox.remove()

    def _prepare(self, systems: tuple[System, ...]) -> Rows:
        """Return the initial rows of these systems, built once for all attempts of a case."""
        known = self._prepared.get(id(systems))
        if known is None or known[0] is not systems:
            try:
                rows = provision_rows(systems, AROUND)
            except SpecError as error:
                raise TargetError(f"the simulated systems cannot be made: {error.field}: {error.message}", code="no_sandbox") from error
            if len(self._prepared) >= _MOST_PREPARED:
                self._prepared.clear()
            # The systems are stored with their rows, so that their `id()` stays unique.
            known = self._prepared[id(systems)] = (systems, rows)
        return known[1]


async def _add_state(evidence: Evidence, sandbox: Sandbox) -> Evidence:
    """Return evidence with the state of the systems; families that only the target observed stay."""
    state = await sandbox.read_state()
    # Systems that did not behave as the case requires say nothing about the agent.
    if sandbox.failed_steps:
        failed = "; ".join(sandbox.failed_steps)
        raise TargetError(f"a step of the scenario could not be performed: {failed}", code="no_sandbox")
    if evidence.state is not None:
        families: dict[str, Json] = {name: getattr(evidence.state, name) for name in evidence.state.__struct_fields__}
        families.update({name: value for name in state.__struct_fields__ if (value := getattr(state, name)) is not None})
        state = type(state)(**families)
    unplayed = sandbox.list_unplayed()
    account = msgspec.structs.replace(evidence.account or Account(), unplayed=unplayed) if unplayed else evidence.account
    return msgspec.structs.replace(evidence, state=state, account=account)


def fill_case(case: Case, variables: Mapping[str, str]) -> Case:
    """Return a case with the variables of its systems in its context, and filled into its messages."""

    def fill(value: Json) -> Json:
        if isinstance(value, str):
            for name, content in variables.items():
                value = value.replace(f"{{{name}}}", content)
            return value
        if isinstance(value, dict):
            return {key: fill(member) for key, member in value.items()}
        return [fill(item) for item in value] if isinstance(value, list) else value

    return msgspec.structs.replace(
        case,
        context={**case.context, **variables},
        input=fill(case.input),
        turns=tuple(msgspec.structs.replace(turn, input=fill(turn.input)) for turn in case.turns),
        custom_body=fill(case.custom_body),
    )
