"""Text formats of other systems as typed data: HL7, X12, FHIR search, transcripts."""
