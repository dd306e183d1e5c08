"""Traces: receiving, routing to agents, evaluation against cases, search."""
