"""The report model: a document of sections, tables, figures and charts, and its writers for terminal, Markdown, HTML and JSON."""
