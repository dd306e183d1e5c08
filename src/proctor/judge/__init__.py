"""Claims in plain language, decided by models that are asked with care."""
