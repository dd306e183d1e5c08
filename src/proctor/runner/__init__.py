"""Drives cases against a target: concurrency, limits, retries, budgets."""
