"""Retention and cleanup."""
