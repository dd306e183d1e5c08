"""YAML, JSON and tables as documents with positions, for every dialect."""
