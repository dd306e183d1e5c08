"""Checks on the answer: text, JSON, schema, language, personal data."""
