"""The figures that a test and a suite of tests share; they differ only in whose iterations they count."""

from __future__ import annotations

from abc import ABC, abstractmethod

from proctor.evals.grading.results import EvalRunResult, SuiteAggregate
from proctor.evals.metrics import Counts, accuracy, compute_mean_tokens


class Figures(ABC):
    """Rates over the iterations of the last run. Raises `RuntimeError` before the first."""

    def accuracy(self) -> float:
        """Return the share of iterations that passed."""
        totals = self._get_totals()
        return accuracy(totals.successes, totals.iterations)

    def precision(self) -> float:
        """Return the share of calls that were expected. Raises `ValueError` without `expected_tool_calls`."""
        return self._count_expected("precision").precision()

    def recall(self) -> float:
        """Return the share of expected calls that were made. Raises `ValueError` without `expected_tool_calls`."""
        return self._count_expected("recall").recall()

    def true_positive_rate(self) -> float:
        """Return the same as `recall`."""
        return self._count_expected("true_positive_rate").recall()

    def unexpected_tool_call_rate(self) -> float:
        """Return the share of iterations with a call that was not expected."""
        self._get_totals()
        return self.add_counts(Counts()).unexpected_rate()

    def false_positive_rate(self) -> float:
        """Return the share of iterations with a call that was not expected; without expected calls, of those that failed."""
        totals = self._get_totals()
        return self.unexpected_tool_call_rate() if self.expects_calls else accuracy(totals.failures, totals.iterations)

    def average_token_use(self) -> float:
        """Tokens per iteration."""
        totals = self._get_totals()
        return compute_mean_tokens(totals.token_usage.total, totals.iterations)

    def _count_expected(self, what: str) -> Counts:
        self._get_totals()
        if not self.expects_calls:
            raise ValueError(f"{what} needs expected_tool_calls, and {self._describe_without_calls()}")
        return self.add_counts(Counts(), expecting=True)

    @property
    @abstractmethod
    def expects_calls(self) -> bool:
        """Whether calls are expected by name."""

    @abstractmethod
    def add_counts(self, counts: Counts, *, expecting: bool = False) -> Counts:
        """Add the iterations of the last run to some counts; `expecting`: only of tests that expect calls by name."""

    @abstractmethod
    def _get_totals(self) -> EvalRunResult | SuiteAggregate:
        """Return the sums of the last run. Raises `RuntimeError` before the first."""

    @abstractmethod
    def _describe_without_calls(self) -> str:
        """Return, in words, that no calls are expected."""
