"""Reads files, folders and streams that hold suites and evidence."""
