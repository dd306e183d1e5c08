"""The kinds of simulated systems: one file each, which defines its `SIMULATOR`."""
