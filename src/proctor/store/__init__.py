"""Finished results, kept so that a crash cannot lose them."""
