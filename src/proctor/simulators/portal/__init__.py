"""What a simulated payer portal is made of: its wizards, its pages, and how requests are determined."""
