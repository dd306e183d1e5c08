"""How a resource of the verification API is declared and stored."""
