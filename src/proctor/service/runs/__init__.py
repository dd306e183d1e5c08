"""Runs: suites run on request, from the queue to their results."""
