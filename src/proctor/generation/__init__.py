"""Generates cases from recorded runs, tool schemas and workflows, without a model; the same input gives the same cases."""
