"""Recordings of requests and responses, their replay, and the removal of secrets from everything that is stored."""
