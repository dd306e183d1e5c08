"""Turns what an agent returned into evidence with an account of what is unknown, by one rule for every kind of target."""
