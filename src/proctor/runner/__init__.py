"""Cases driven against a target: concurrency, limits, retries, budgets."""
