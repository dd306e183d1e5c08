"""Judged metrics that users of other eval tools know: faithfulness, relevancy, pairwise comparison and others."""
