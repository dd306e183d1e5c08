"""Decides which parts of evidence are unknown, and why: one rule for every reader."""
