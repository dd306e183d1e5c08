"""What is going on in a project: its trend, its alerts, and what has changed since a moment."""
