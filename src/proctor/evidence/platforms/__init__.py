"""Documents of n8n, Flowise and MCPLab."""
