"""MCPLab configurations: their files, plans, judges and access to servers."""
