"""What the simulated HL7 receiver is made of: its rules, and the acknowledgements it answers."""
