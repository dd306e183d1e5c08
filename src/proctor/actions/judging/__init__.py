"""Which judge decides, with which settings, and what it needs."""
