"""One module per verb: the only place where packages are wired together."""
