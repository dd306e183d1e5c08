"""Agents on this machine: a Python function, a program, a recording."""
