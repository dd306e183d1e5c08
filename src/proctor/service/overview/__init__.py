"""The state of a project: trend, alerts, and changes since a time."""
