"""Getting started: demo, init, describe."""
