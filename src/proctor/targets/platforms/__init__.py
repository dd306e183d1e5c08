"""Agents behind an HTTP address: any API, n8n, Flowise."""
