"""Retention, health and export of the service."""
