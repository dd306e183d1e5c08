"""Checks on recorded evidence: check, recheck, validate, convert, describe a trace."""
