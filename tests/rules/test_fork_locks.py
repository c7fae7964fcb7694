"""Every lock of ours is free in a forked child: taken around fork(), so that what it guards is whole."""

from __future__ import annotations

import re

from support.source import code_only, files, name, refuse

DECLARATION = re.compile(
    r"^\s*(?:static |extern )?(?:vlci_lock|pthread_mutex_t) ([\w, ]+?)(?: = \w+)?;", re.MULTILINE
)
AROUND_FORK = re.compile(
    r"(?:vlci_lock_fork|vlci_mutex_fork|pthread_mutex_lock)\(&(?:[\w.\[\]]+(?:->|\.))*(\w+)"
)

# Left behind with what they guard: the child of a thread of the pool, or of a visitor, makes another pool.
NEVER_MET_AGAIN = {("native/context/pool.c", "lock")}


def test_every_lock_is_taken_around_fork() -> None:
    texts = {name(path): code_only(path.read_text()) for path in files("native", suffixes=(".c", ".h"))}
    handlers = {
        file: set(AROUND_FORK.findall(text))
        for file, text in texts.items()
        if "VLCI_FORK" in text or "_fork(" in text
    }
    # One of a file's own is named there; one of a record in the file that forks it.
    anywhere = set().union(*handlers.values())
    declared = [
        (file, lock.strip())
        for file, text in texts.items()
        for found in DECLARATION.findall(text)
        for lock in found.split(",")
    ]
    assert len(declared) > 20, f"the sources were not understood: {declared}"
    missing = (
        f"{file}: {lock}"
        for file, lock in declared
        if (file, lock) not in NEVER_MET_AGAIN
        and lock
        not in (
            handlers.get(file, set()) if file.endswith(".c") and not lock.startswith("vlci_") else anywhere
        )
    )
    refuse(
        missing,
        "in a forked child these may be held by a thread that is not there; take them in a *_fork(when):",
    )
