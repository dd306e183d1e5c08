"""One file per command: parse its options, call an action, show the answer."""
