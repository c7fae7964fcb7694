"""`python -m vlcs`: the command `vlcs` of this Python."""

import sys

from vlcs._cli import main

sys.exit(main())
