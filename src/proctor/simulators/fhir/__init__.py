"""What a FHIR R4 server does, verb by verb."""
