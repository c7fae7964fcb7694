"""The headers stand alone, in the strictest dialects that their users have."""

from __future__ import annotations

import subprocess

import pytest

from support.machine import ROOT

USE_C = """
#include <vlcs.h>
vlc_error error = VLC_ERROR_INIT;
vlc_spec spec = VLC_SPEC_INIT;
vlc_stats stats = VLC_STATS_INIT;
"""
USE_CXX = """
#include <vlcs.hpp>
#include <string>
int use()
{
    auto options = vlcs::options{}.name("a").cpus({0, 1}).env({"A=1"}).share({"libcuda.so.1"}).threads(2);
    options.memory(VLC_MEMORY_BIND, {{0}}).memory_limit(1ul << 30).huge_pages(VLC_HUGE_PAGES_NEVER);
    vlcs::context context(options);
    auto twice = context.load("libtwice.so").function<int(int)>("twice");
    context.run([] {});
    vlcs::entered inside(context);
    auto task = context.submit([=] { return std::to_string(twice(21)); });
    return context.run([=] { return twice(21); }) + static_cast<int>(task.get().size());
}
"""


@pytest.mark.parametrize(
    ("compiler", "language", "source"),
    [
        (["gcc", "-std=c11", "-pedantic"], "c", USE_C),
        (["g++", "-std=c++17", "-pedantic"], "c++", USE_C),
        (["g++", "-std=c++17", "-pedantic"], "c++", USE_CXX),
        (["g++", "-std=c++20", "-pedantic"], "c++", USE_CXX),
    ],
    ids=["c11", "c++17 with vlcs.h", "c++17", "c++20"],
)
def test_a_header_compiles_without_a_warning(compiler: list[str], language: str, source: str) -> None:
    options = [
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsyntax-only",
        f"-I{ROOT / 'native/include'}",
        "-x",
        language,
        "-",
    ]
    done = subprocess.run([*compiler, *options], input=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
