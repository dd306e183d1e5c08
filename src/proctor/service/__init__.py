"""What a service does for its callers: verbs over the database, the same for REST and MCP."""
