"""The service over HTTP: the routes that the dialects' clients know, and our own under `/api`."""
