"""Exit codes, and `--watch`."""
