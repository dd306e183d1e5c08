"""Readers and writers of suites: the four dialects and our own."""
