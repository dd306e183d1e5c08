"""Starts the template server; a script of its own, because Python compiles a script anew in every process, but not what it imports."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.doctor.template_server import main

if __name__ == "__main__":
    main()
