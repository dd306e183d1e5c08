"""The claims a suite can make, one file per family."""
