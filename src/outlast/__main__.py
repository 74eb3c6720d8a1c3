"""`python -m outlast`, the same as the `outlast` command."""

import sys

from outlast.cli import main

sys.exit(main())
