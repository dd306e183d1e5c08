"""Verial benchmarks, tasks and criteria."""
