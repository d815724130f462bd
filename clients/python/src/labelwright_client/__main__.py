"""`python -m labelwright_client` is the command `labelwright`."""

import sys

from labelwright_client.cli import main

if __name__ == "__main__":
    sys.exit(main())
