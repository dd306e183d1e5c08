"""Return values of agents of real frameworks: plain, as streams, over several turns, with errors.

`drive.py` runs the agents of one framework in its environment, `compare.py` compares, `../returns.yaml` has the expected results.
"""
