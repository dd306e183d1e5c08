"""Simulated systems for agents: their data, their answers, and the differences at the end. Pure: no clock, no network."""
