"""Simulated users, who talk to the agent in cases without a fixed list of messages."""
