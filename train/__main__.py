"""`python -m train METHOD --dataset NAME`."""

import sys

from train.cli import main

sys.exit(main())
