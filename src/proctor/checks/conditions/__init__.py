"""Checks written as a condition over fields of the evidence."""
