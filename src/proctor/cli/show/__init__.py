"""What commands print: progress, results, comparisons."""
