"""Runs against an agent: targets, options, policies, simulated users."""
