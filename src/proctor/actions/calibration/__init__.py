"""Judges measured on labels, and improved with them."""
