"""MCPLab configurations and scenarios."""
