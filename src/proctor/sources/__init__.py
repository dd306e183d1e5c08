"""Reads files, folders and streams that contain suites and evidence."""
