"""What the simulated clearinghouse is made of: its dataset, the envelopes around transactions, and the answers it writes."""
