"""Parts of a report, independent of the page they appear on."""
