"""None of our code sets thread-count variables: libraries must see the slice, not be told a number."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from support.source import files, name, offences, refuse, without_comments

if TYPE_CHECKING:
    from collections.abc import Iterator

# The one file that knows their names, because it drops them from what a context inherits.
ENVIRONMENT = "native/overrides/env.c"
NAME = r"(?:[A-Z][A-Z0-9_]*_(?:NUM|MAX|MAXIMUM)_THREADS|OMP_THREAD_LIMIT|LOKY_MAX_CPU_COUNT|PYTHON_CPU_COUNT)"
VARIABLE = re.compile(NAME + "(?:=|$)")
CURE = "Do not set thread counts: answer the library's question about its CPUs instead (native/overrides)."


def test_native_code_names_them_only_to_drop_them() -> None:
    literal = '"' + NAME
    refuse(
        offences(literal, "native", allowed=lambda path: path == ENVIRONMENT, view=without_comments),
        CURE,
    )
    refuse(
        offences(literal + "=", "native", view=without_comments),
        CURE,
    )


def test_python_code_does_not_name_them() -> None:
    def found() -> Iterator[str]:
        for path in files("src", suffixes=(".py",)):
            for node in ast.walk(ast.parse(path.read_text())):
                value = node.arg if isinstance(node, ast.keyword) else getattr(node, "value", None)
                if (
                    isinstance(node, ast.Constant | ast.keyword)
                    and isinstance(value, str)
                    and VARIABLE.match(value)
                ):
                    yield f"{name(path)}:{node.lineno}: {value}"

    refuse(found(), CURE)
