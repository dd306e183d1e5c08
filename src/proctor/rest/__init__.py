"""The service over HTTP: the doors that the dialects' clients know, and our own under `/api`."""
