"""Evals written in Python: agents that are prompted, tests that are repeated, suites of tests."""
