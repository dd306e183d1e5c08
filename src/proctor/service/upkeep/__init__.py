"""Keeps the service in order: retention, its health, and a clock that was put back."""
