"""Traces: taken in, routed to their agent, evaluated against its cases, searched."""
