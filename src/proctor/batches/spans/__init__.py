"""Spans of one trace gathered from many rows."""
