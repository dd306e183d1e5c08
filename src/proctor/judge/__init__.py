"""Judges: claims in plain language, decided by asking models with care."""
