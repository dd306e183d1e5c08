"""What was said over a wire, kept and replayed."""
