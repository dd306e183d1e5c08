"""What agents of real frameworks return: plainly, as streams, over several turns, with errors.

`drive.py` drives the agents of one framework in its environment, `compare.py` compares, `../returns.yaml` says what must be seen.
"""
