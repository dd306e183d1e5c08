"""Checks that a judge decides by a criterion or a rubric."""
