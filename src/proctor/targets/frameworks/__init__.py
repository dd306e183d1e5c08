"""What agent frameworks return, read as evidence: one file per framework, and `recognise.py`, which finds the right one."""
