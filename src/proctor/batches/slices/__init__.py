"""Figures per slice, and sketches for many values."""
