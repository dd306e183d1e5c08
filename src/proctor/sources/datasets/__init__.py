"""Data sets of a batch: files, partitions, columns, filters."""
