"""Plain evidence: one JSON object is one run."""
