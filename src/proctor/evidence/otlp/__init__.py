"""OTLP requests, JSON or protobuf, as spans."""
