"""Judges: claims in plain language, decided by models."""
