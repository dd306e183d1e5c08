"""How an expected value is compared with an actual one, and how a mismatch is explained."""
