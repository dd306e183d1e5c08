"""Who may do what: keys, callers, secrets, projects, agents, and the audit log."""
