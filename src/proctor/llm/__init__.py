"""One chat protocol over every model."""
