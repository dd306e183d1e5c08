"""Keeps finished results so that a crash cannot lose them."""
