"""The MCP server for coding agents: authoring, checking and reading results. A thin layer over `service` and `actions`."""
