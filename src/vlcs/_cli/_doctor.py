"""`vlcs doctor`: what each resource of a context would be worth here, why, and what to do for more."""

from __future__ import annotations

import json
import textwrap

from vlcs._core import _doctor
from vlcs._core._registry import REGISTRY


def doctor(*, as_json: bool) -> int:
    """Prints it."""
    found = _doctor.examine(REGISTRY.machine())
    if as_json:
        print(json.dumps(found, indent=2))
        return 0
    width = max(map(len, found))
    for name, line in found.items():
        print(f"{name:{width}}  {line['state']}")
        for text in (line["reason"], line["cure"]):
            if text:
                print(textwrap.fill(text, 100, initial_indent="    ", subsequent_indent="    "))
    return 0
