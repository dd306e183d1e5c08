"""One file per command: parses its options, calls an action, shows the answer."""
