"""Starts the template server. It is a separate script because Python recompiles a script in every process, but not its imports."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.doctor.template_server import main

if __name__ == "__main__":
    main()
