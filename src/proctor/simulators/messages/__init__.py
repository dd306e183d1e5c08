"""What simulated messages are made of: people who answer, and the shapes in which messages are sent and told."""
