"""The native suite format."""
