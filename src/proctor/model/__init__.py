"""Typed values: suites, evidence, verdicts, results."""
