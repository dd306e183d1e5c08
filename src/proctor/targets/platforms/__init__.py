"""Agents with an HTTP API: any API, n8n, Flowise."""
