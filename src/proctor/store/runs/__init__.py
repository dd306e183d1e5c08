"""Runs and their attempts in the database."""
