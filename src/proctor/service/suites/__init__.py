"""Suites that were sent to the service: read, put together with the library of their project, and bounded in what they may reach."""
