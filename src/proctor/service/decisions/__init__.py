"""Decides everything: processes beside the service, a pool of them shared fairly, and the messages they get."""
