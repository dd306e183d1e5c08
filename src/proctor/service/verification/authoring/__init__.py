"""Authoring: benchmarks, tasks, criteria, datasets, simulators, solvers."""
