"""JSON bytes, typed access to decoded JSON, answer texts and times."""
