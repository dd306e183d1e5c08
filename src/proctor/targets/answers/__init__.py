"""Turns the answer of an agent into evidence with an account of unknown parts, by one rule for every kind of target."""
