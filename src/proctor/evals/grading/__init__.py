"""Scorers, expectations, results and gates."""
