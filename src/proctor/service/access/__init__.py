"""Access: keys, callers, permissions, secrets, projects, agents, and the audit log."""
