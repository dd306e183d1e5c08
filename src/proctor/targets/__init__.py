"""The agents under test, all with one small protocol."""
