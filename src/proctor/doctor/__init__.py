"""The doctor: examines an MCP server, whatever it is written in. It sees every message, and calls only tools that were declared safe."""
