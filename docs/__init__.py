"""The documentation: Markdown for people, and the program that writes the parts of it which the code knows best."""
