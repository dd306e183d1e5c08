"""Calls, usage, conversations and state, in the form every reader builds."""
