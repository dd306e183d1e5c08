"""What goes out to addresses that somebody else chose."""
