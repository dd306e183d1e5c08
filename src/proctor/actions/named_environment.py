"""A target whose cases name an environment that only a service has: where nobody observed a state, the verdicts say what to do."""

from __future__ import annotations

import msgspec

from proctor.actions.driven_target import DrivenTarget
from proctor.cassettes.ports import Tape
from proctor.model.account import Account
from proctor.model.attempt import Attempt
from proctor.model.case import Suite
from proctor.model.evidence import Evidence
from proctor.model.lazy_cases import may_have
from proctor.model.show import show

_SETTING = "environment_id"


def names_environment(suite: Suite) -> bool:
    """Return whether a case names an environment and brings no systems."""
    cases = suite.cases
    return may_have(cases, "settings") and any(_SETTING in case.settings and not case.systems for case in cases)


class NamedEnvironmentTarget(DrivenTarget):
    """Drives another target, which may observe a state itself; where it does not, the state is unknown, and why is told."""

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Drive the target."""
        evidence = await super().run(attempt, tape)
        named = attempt.case.settings.get(_SETTING)
        if named is None or attempt.case.systems or evidence.state is not None:
            return evidence
        account = evidence.account or Account()
        told = (
            f"the document names its environment {show(named)} by id alone, which only a service has; "
            "write its simulators into the document as `environment`, or run the task on the service"
        )
        return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, unknown={**account.unknown, "state": told}))
