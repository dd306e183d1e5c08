"""Traces: received, routed to their agent, evaluated against its cases, searched."""
