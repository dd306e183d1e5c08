"""Checks on the run itself: cost, limits, nodes, HTTP requests, widgets."""
