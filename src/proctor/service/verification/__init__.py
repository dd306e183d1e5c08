"""The verification API: what Verial's clients author (benchmarks, tasks, criteria) and what comes of verifying it."""
