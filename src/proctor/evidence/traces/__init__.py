"""Spans of one trace as evidence."""
