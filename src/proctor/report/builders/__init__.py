"""One module per report: builds the document of a calibration, a batch, a comparison or a run."""
