"""Faults planted in recorded evidence, to measure which of them a suite detects."""
