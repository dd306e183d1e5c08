"""MCPJam suites."""
