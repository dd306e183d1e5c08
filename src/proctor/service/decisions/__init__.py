"""Decides cases in separate processes: a fairly shared pool, and its messages."""
