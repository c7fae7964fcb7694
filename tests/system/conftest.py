"""Fixtures of the system tests."""

from __future__ import annotations

import pytest

from support.libraries import Builder


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """Compiles C libraries for contexts to load."""
    return Builder(tmp_path_factory.mktemp("libraries"))
