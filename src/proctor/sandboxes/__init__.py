"""Simulated systems that an agent can reach: served on loopback, with separate systems and a separate token for each attempt."""
