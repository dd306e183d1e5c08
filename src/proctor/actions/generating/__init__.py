"""Generates cases, and accepts proposed ones into a suite."""
