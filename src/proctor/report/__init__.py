"""Finished results as text: terminal, JSON, JUnit, Markdown."""
