"""Runs: suites driven on request, from the queue to their results."""
