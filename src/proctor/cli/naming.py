"""The flags by which somebody names a run."""

import argparse


def add_name_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a command that keeps a run."""
    parser.add_argument("--name", default="", metavar="NAME", help="what to call the run; of several with one name the newest is meant")
    parser.add_argument("--tag", default=[], action="append", metavar="TAG", help="a word to find the run by, as @TAG; may be repeated")
    parser.add_argument("--note", default="", metavar="TEXT", help="a remark to keep with the run")
