"""What simulated phone lines are made of: the menus that answer a call, and the people who talk."""
