"""The little expression language of dynamic expected values."""
