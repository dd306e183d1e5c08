"""Message lists of providers and frameworks."""
