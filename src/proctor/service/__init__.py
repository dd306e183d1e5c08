"""What a service does for its callers: functions over the database, the same for REST and MCP."""
