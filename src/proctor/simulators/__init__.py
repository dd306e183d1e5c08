"""Simulated systems that an agent works in: what they hold, what they answer, and what differs in the end. Pure: no clock, no wire."""
