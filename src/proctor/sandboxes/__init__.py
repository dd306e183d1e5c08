"""Simulated systems within reach of an agent: served on loopback, each attempt with systems and a token of its own."""
