"""The workspace file `proctor.yaml`."""
