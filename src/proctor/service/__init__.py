"""The service: functions over the database, the same for REST and MCP."""
