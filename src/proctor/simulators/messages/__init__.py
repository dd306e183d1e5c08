"""Parts of simulated messages: people who answer, and the formats of providers."""
