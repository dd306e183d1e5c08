"""Captures the OpenTelemetry spans of an agent that runs in this process."""
