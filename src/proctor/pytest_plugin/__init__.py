"""Suites as pytest items, and fixtures for tests of agents."""
