"""Checks on tool calls: which, how often, in which order, with which arguments and errors."""
