"""Cases decided on evidence: checks prepared once, dependencies, turns, captures."""
