"""What a suite may use only after the user trusted it: code, commands, addresses, variables."""
