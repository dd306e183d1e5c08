"""Paths into JSON: dotted and JSONPath."""
