"""Evidence in a user's own log format, read by the paths that the user declares."""
