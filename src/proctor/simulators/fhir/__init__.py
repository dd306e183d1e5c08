"""The operations of a FHIR R4 server."""
