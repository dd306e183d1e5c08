"""Every noun of the verification API, in the order in which the doors show them."""

from __future__ import annotations

from proctor.service.verification import benchmark_runs, criterion_runs, leaderboard, task_runs
from proctor.service.verification.benchmarks import BENCHMARK, VERSION
from proctor.service.verification.criteria import CRITERION
from proctor.service.verification.datasets import DATASET, ENTITY
from proctor.service.verification.declaration import Resource
from proctor.service.verification.environments import ENVIRONMENT
from proctor.service.verification.legacy_evals import EVAL, EVAL_RUN, OLDER_RUN
from proctor.service.verification.playgrounds import PLAYGROUND, SANDBOX
from proctor.service.verification.public_runs import PUBLIC_RUN
from proctor.service.verification.run_nouns import CRITERION_RUN, RUN, TASK_RUN
from proctor.service.verification.run_shares import SHARE, SHARED_RUN
from proctor.service.verification.sandbox_records import EVENT
from proctor.service.verification.simulators import SIMULATOR
from proctor.service.verification.solvers import SOLVER
from proctor.service.verification.tasks import TASK

# The nouns of running get their operations from these.
_ = (benchmark_runs, task_runs, criterion_runs, leaderboard)
NOUNS: tuple[Resource, ...] = (
    *(ENVIRONMENT, SIMULATOR, DATASET, ENTITY, BENCHMARK, VERSION, TASK, CRITERION, PLAYGROUND, SANDBOX, EVENT),
    *(RUN, TASK_RUN, CRITERION_RUN, SHARE, SHARED_RUN, SOLVER, PUBLIC_RUN, EVAL, EVAL_RUN, OLDER_RUN),
)
