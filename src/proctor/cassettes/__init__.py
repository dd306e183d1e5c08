"""Recordings of what was said over a wire, and their replay."""
