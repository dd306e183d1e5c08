"""The agents under test, each behind one small protocol."""
