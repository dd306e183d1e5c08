"""Benchmark runs, task runs, states, shares and the leaderboard."""
