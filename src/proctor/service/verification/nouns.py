"""Every resource of the verification API, in display order."""

from __future__ import annotations

from proctor.service.verification.authoring.benchmarks import BENCHMARK, VERSION
from proctor.service.verification.authoring.criteria import CRITERION
from proctor.service.verification.authoring.datasets import DATASET, ENTITY
from proctor.service.verification.authoring.environments import ENVIRONMENT, SIMULATOR
from proctor.service.verification.authoring.solvers import SOLVER
from proctor.service.verification.authoring.tasks import TASK
from proctor.service.verification.runs import benchmark_runs, leaderboard, task_runs
from proctor.service.verification.runs.legacy_evals import EVAL, EVAL_RUN, OLDER_RUN
from proctor.service.verification.runs.public_runs import PUBLIC_RUN
from proctor.service.verification.runs.resources import CRITERION_RUN, RUN, TASK_RUN
from proctor.service.verification.runs.shares import SHARE, SHARED_RUN
from proctor.service.verification.sandboxes.playgrounds import PLAYGROUND, SANDBOX
from proctor.service.verification.sandboxes.records import EVENT
from proctor.service.verification.shared.declaration import Resource

# These modules add the operations of runs.
_ = (benchmark_runs, task_runs, leaderboard)
NOUNS: tuple[Resource, ...] = (
    ENVIRONMENT, SIMULATOR, DATASET, ENTITY, BENCHMARK, VERSION, TASK, CRITERION, PLAYGROUND, SANDBOX, EVENT,
    RUN, TASK_RUN, CRITERION_RUN, SHARE, SHARED_RUN, SOLVER, PUBLIC_RUN, EVAL, EVAL_RUN, OLDER_RUN,
)  # fmt: skip
