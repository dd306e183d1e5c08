"""Rows of spans, as trace stores export them."""
