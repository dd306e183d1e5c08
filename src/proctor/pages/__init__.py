"""The web pages: projects, runs, results and comparisons for people to read. A thin door; the verbs are in `service` and `actions`."""
