"""Checks on the end state of simulated systems: FHIR, HL7, X12, portals, files, voice."""
