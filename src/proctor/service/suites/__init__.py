"""Suites sent to the service: parsing, the library of their project, and limits on what they may reach."""
