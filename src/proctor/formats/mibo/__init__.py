"""Mibo test cases."""
