"""What several checks use: access to the evidence, reasons, places of characters, rubrics, custom checks."""
