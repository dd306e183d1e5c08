"""Tenants, keys, sessions, secrets, sandboxes, alerts, annotations, audit."""
