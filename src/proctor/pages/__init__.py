"""The web pages: projects, runs, results and comparisons. A thin layer over `service` and `actions`."""
