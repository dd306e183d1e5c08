"""Requests to untrusted addresses."""
