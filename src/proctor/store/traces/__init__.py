"""Traces, and the queues for evaluation and export."""
