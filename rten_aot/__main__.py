"""``python -m rten_aot`` is ``rten-aot``."""

import sys

from rten_aot.cli import main

if __name__ == "__main__":
    sys.exit(main())
