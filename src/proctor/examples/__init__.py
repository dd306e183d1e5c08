"""The bundled examples: one suite and one piece of evidence per dialect, run by `proctor demo`."""
