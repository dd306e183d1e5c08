"""Machine-readable reports: JSON, JUnit, Parquet, CSV, MCPLab artifacts."""
