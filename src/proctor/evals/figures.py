"""The figures that a test and a suite of tests both have; they differ only in whose iterations they count."""

from __future__ import annotations

from abc import ABC, abstractmethod

from proctor.evals.metrics import Counts, accuracy, mean_tokens
from proctor.evals.results import EvalRunResult, SuiteAggregate


class Figures(ABC):
    """Rates over the iterations of the last run. Raises `RuntimeError` before the first."""

    def accuracy(self) -> float:
        """The share of iterations that passed."""
        totals = self._totals()
        return accuracy(totals.successes, totals.iterations)

    def precision(self) -> float:
        """The share of calls that were expected. Raises `ValueError` without `expected_tool_calls`."""
        return self._counts_of_expected("precision").precision()

    def recall(self) -> float:
        """The share of expected calls that were made. Raises `ValueError` without `expected_tool_calls`."""
        return self._counts_of_expected("recall").recall()

    def true_positive_rate(self) -> float:
        """The same as `recall`."""
        return self._counts_of_expected("true_positive_rate").recall()

    def unexpected_tool_call_rate(self) -> float:
        """The share of iterations with a call that was not expected."""
        self._totals()
        return self.add_counts(Counts()).unexpected_rate()

    def false_positive_rate(self) -> float:
        """The share of iterations with a call that was not expected; without expected calls, of those that failed."""
        totals = self._totals()
        return self.unexpected_tool_call_rate() if self.expects_calls else accuracy(totals.failures, totals.iterations)

    def average_token_use(self) -> float:
        """Tokens per iteration."""
        totals = self._totals()
        return mean_tokens(totals.token_usage.total, totals.iterations)

    def _counts_of_expected(self, what: str) -> Counts:
        self._totals()
        if not self.expects_calls:
            raise ValueError(f"{what} needs expected_tool_calls, and {self._without_calls()}")
        return self.add_counts(Counts(), expecting=True)

    @property
    @abstractmethod
    def expects_calls(self) -> bool:
        """Whether calls are expected by name."""

    @abstractmethod
    def add_counts(self, counts: Counts, *, expecting: bool = False) -> Counts:
        """Add the iterations of the last run to some counts; `expecting`: only of tests that expect calls by name."""

    @abstractmethod
    def _totals(self) -> EvalRunResult | SuiteAggregate:
        """The sums of the last run; raises `RuntimeError` before the first."""

    @abstractmethod
    def _without_calls(self) -> str:
        """That no calls are expected, in words."""
