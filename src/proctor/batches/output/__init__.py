"""The output folder of a batch: result tables, index, identity of the suite."""
