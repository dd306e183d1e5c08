"""`python -m proctor` is `proctor`."""

import sys

from proctor.cli import main

if __name__ == "__main__":
    sys.exit(main())
