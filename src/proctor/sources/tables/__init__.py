"""Data files that a suite names: CSV, JSON lines, Excel, Parquet, Hugging Face folders."""
