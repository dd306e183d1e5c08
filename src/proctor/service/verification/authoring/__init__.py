"""What authors write: benchmarks, tasks, criteria, data sets, simulators, solvers."""
