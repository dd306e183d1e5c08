"""One file per verb: the only place where rooms are wired together."""
