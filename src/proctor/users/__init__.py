"""Simulated users: who talks to the agent where a case does not list what is said."""
