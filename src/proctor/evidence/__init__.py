"""Read recorded runs of every shape as evidence."""
