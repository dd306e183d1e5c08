"""Sentences, labels and figures that every report shares."""
