"""Readers that turn recorded runs of every shape into evidence."""
