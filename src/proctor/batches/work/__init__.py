"""The work on one partition."""
