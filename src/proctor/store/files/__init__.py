"""Runs as folders on disk, and baselines."""
