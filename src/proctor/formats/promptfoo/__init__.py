"""promptfoo assertions and test rows."""
