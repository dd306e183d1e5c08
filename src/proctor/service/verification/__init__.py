"""The verification API of Verial's clients: authoring (benchmarks, tasks, criteria), sandboxes and runs."""
