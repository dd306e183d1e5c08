"""Collects suites as pytest items, and offers fixtures for tests of agents."""
