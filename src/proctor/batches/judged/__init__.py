"""The judged sample of a batch."""
