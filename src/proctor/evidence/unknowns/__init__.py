"""What is unknown in evidence, and why: one rule for every reader."""
