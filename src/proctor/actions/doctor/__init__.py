"""The doctor for a server as a user names it: a command, an address, an entry of a file."""
