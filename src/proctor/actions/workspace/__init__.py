"""The workspace: settings, suites, prices, stored runs, custom checks."""
