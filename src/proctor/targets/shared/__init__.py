"""Shared by several kinds of targets: the conversation, the HTTP client, templates, faults."""
