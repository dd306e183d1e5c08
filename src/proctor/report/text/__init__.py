"""Terminal and Markdown reports."""
