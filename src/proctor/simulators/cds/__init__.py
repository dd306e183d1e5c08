"""What the simulated side of CDS Hooks is made of: services, cards, and what is wrong with them."""
