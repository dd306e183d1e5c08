"""What simulated faxes are made of: documents that are read and written."""
