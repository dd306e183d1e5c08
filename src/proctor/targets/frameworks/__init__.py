"""Reads the return values of agent frameworks as evidence: one file per framework, and `recognise.py`, which chooses among them."""
