"""Human labels and notes on answers, and the agreement of judges with them."""
