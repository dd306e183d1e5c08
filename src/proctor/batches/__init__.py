"""Batches: recorded evidence of any size, evaluated partition by partition, each committed once."""
