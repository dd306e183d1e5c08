"""The kinds of simulated systems: one file each, which makes its `SIMULATOR`."""
