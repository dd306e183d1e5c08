"""From verdicts to scores: one case, several attempts, a whole run."""
