"""The results as a table, and in a few sentences."""

from collections.abc import Sequence
from statistics import median

from vlcs._demo._measure import CONTEXTS, DEFAULTS, IN_TURN, TUNED, Measured

_NEAR = 0.05
"""Ratios to the best setting by hand count as equal up to this."""


def in_short(result: Measured) -> str:
    """One line about one pair, for those who wait for the rest."""
    times = zip("abc", (median(result.seconds[way]) for way in (DEFAULTS, TUNED, CONTEXTS)), strict=True)
    return f"{result.pair.title}: " + ", ".join(f"({letter}) {seconds:.2f} s" for letter, seconds in times)


def table(results: Sequence[Measured]) -> str:
    """Medians of every way and the ratios that matter, a row for each pair."""
    rows = [["", "(a)", "(b)", "(c)", "a/c", "c/b"]]
    for one in results:
        times = [f"{median(one.seconds[way]):.2f} s" for way in (DEFAULTS, TUNED, CONTEXTS)]
        ratios = [str(one.ratio(DEFAULTS, CONTEXTS)), str(one.ratio(CONTEXTS, TUNED))]
        rows.append([one.pair.title, *times, *ratios])
    title, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = []
    for first, *rest in rows:
        cells = [cell.rjust(width) for cell, width in zip(rest, others, strict=True)]
        lines.append("  ".join([first.ljust(title), *cells]))
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join([*lines, "", *_legend(results)])


def _legend(results: Sequence[Measured]) -> list[str]:
    width = max(len(one.pair.title) for one in results)
    settings = [
        f"    {one.pair.title.ljust(width)}  {one.found.best} (of {len(one.found.seconds)} tried)"
        for one in results
    ]
    in_turn = [
        f"One after the other, {one.pair.title} takes {median(one.seconds[IN_TURN]):.2f} s: "
        f"{one.ratio(IN_TURN, CONTEXTS)} times as long as (c)."
        for one in results
        if IN_TURN in one.seconds
    ]
    rounds = sorted({len(one.seconds[DEFAULTS]) for one in results})
    certainty = min(one.ratio(DEFAULTS, CONTEXTS).coverage for one in results)
    counts = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
    return [
        "(a) one process, two threads, nothing set",
        "(b) the same with the best setting that a search found:",
        *settings,
        "(c) two VLCs in one process, half of the CPUs each, nothing set",
        f"Medians of {counts} rounds in which the ways take turns; ratios with {certainty:.0%} intervals.",
        *in_turn,
    ]


def meaning(results: Sequence[Measured]) -> str:
    """What the figures say, good or bad, in a few sentences."""
    same = [one for one in results if not one.mismatches]
    if len(same) < len(results):
        different = _names([one for one in results if one.mismatches])
        text = f"The ways computed different numbers for {different}, so their times cannot be compared."
    else:
        text = "All ways did the same work and computed the same numbers."
    if not same:
        return text
    better, equal, worse = _against_tuning(same)
    sentences = [text, _against_defaults(same)]
    if equal:
        tried = max(len(one.found.seconds) for one in equal)
        sentences.append(f"They match the best of up to {tried} settings by hand for {_names(equal)}.")
    if better:
        sentences.append(
            f"No setting by hand reaches them for {_names(better)}: threads of one process share its "
            "interpreter's lock, and often a library's lock too."
        )
    sentences += [
        f"For {one.pair.title} the best setting by hand is faster: they took {one.ratio(CONTEXTS, TUNED)} "
        "times as long."
        for one in worse
    ]
    if not worse:
        sentences.append(
            "Nobody had to find a setting for that: each VLC has its own copies of the libraries, with their "
            "own interpreter, locks and thread pools, and to them its half of the CPUs is the machine."
        )
    return " ".join(sentences)


def _against_defaults(results: Sequence[Measured]) -> str:
    faster = [one for one in results if one.ratio(DEFAULTS, CONTEXTS).low > 1]
    rest = [one for one in results if one not in faster]
    if not faster:
        return "Two VLCs were not faster than two threads with untouched defaults."
    ratios = sorted(one.ratio(DEFAULTS, CONTEXTS).median for one in faster)
    low, high = f"{ratios[0]:.2f}", f"{ratios[-1]:.2f}"
    times = low if low == high else f"{low} to {high}"
    text = f"Two VLCs were {times} times as fast as two threads with untouched defaults"
    return f"{text}, but not for {_names(rest)}." if rest else f"{text}."


def _against_tuning(results: Sequence[Measured]) -> tuple[list[Measured], list[Measured], list[Measured]]:
    """Pairs that contexts run faster than the best setting by hand does, as fast, and slower."""
    better, equal, worse = [], [], []
    for one in results:
        against = one.ratio(CONTEXTS, TUNED)
        if against.median < 1 - _NEAR and against.high < 1:
            better.append(one)
        elif against.median > 1 + _NEAR:
            worse.append(one)
        else:
            equal.append(one)
    return better, equal, worse


def _names(results: Sequence[Measured]) -> str:
    """Titles of pairs in a sentence; they hold commas themselves."""
    return " and ".join(f"'{one.pair.title}'" for one in results)
