"""What several checks use: access to the evidence, reasons, rubrics, and the rule for missing evidence."""
