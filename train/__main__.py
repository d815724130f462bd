"""`python -m train METHOD --dataset NAME`."""

import sys

from train.cli import main

if __name__ == "__main__":  # the processes of `compare --jobs` import this module too
    sys.exit(main())
