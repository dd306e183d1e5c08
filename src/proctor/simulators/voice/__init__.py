"""Simulated phone lines: the menus that answer a call, and the people who talk."""
