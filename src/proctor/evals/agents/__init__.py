"""Agents under eval: models, tools, MCP clients, prompts and their results."""
