"""Sandboxes and the requests to their simulated systems."""
