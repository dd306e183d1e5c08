"""What several kinds of targets use: the conversation, the HTTP client, templates, faults."""
