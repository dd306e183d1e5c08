"""Stores finished results durably."""
