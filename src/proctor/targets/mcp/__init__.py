"""Our own agent, and the MCP servers whose tools it calls."""
