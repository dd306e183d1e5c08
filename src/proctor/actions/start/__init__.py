"""The basis of `proctor init`: finds agents in a folder, and writes the files for each kind."""
