"""What `proctor init` starts from: agents found in a folder, and the files that are written for each kind."""
