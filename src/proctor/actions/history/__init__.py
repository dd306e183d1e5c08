"""Stored runs: compare, list failures, show answers."""
