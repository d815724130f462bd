"""`python -m serve BUNDLE...`."""

import sys

from serve.cli import main

sys.exit(main())
