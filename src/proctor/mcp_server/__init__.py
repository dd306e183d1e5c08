"""The MCP server: authoring, checking and reading results from a coding agent. A thin door; the verbs are in `service` and `actions`."""
