"""Where things may stand in native/. A message says the fix; CONTRIBUTING.md has the reasons."""

from __future__ import annotations

import re

from support.source import NATIVE, code_only, files, name, offences, refuse, without_comments

CORE = ("native/loader", "native/overrides", "native/context", "native/tls_pool", "native/child")
OS = "native/context/os_linux.c"
FILE_OVERRIDES = "native/overrides/kernel_file.c"


def in_arch_file(path: str) -> bool:
    return path.rpartition("/")[2].startswith(("arch.", "arch_"))


def test_python_stays_in_the_extension_module() -> None:
    refuse(
        offences(r'#\s*include\s*[<"]Python\.h', *CORE, "native/include", view=without_comments),
        "libvlcs.so serves programs without Python: move what needs Python.h to native/python.",
    )


def test_proc_and_sys_paths_stay_in_one_place() -> None:
    refuse(
        offences(
            r'"/(proc|sys)\b', *CORE, allowed=lambda path: path in {OS, FILE_OVERRIDES}, view=without_comments
        ),
        f"Ask the system through a function of {OS}, so that tests can stand in for the machine "
        f"({FILE_OVERRIDES} may name paths that it answers for).",
    )


def test_raw_system_calls_stay_in_one_place() -> None:
    refuse(
        offences(
            r"\bsyscall\s*\(", *CORE, "native/python", allowed=lambda path: path in {OS, FILE_OVERRIDES}
        ),
        f"Put the system call into a function of {OS} and call that.",
    )


def test_machine_dependent_code_stays_in_arch_files() -> None:
    dependent = (
        r"\b(__asm__|__asm|asm)\b|\bR_(X86_64|AARCH64)_|\b__(x86_64|aarch64)__\b|_(mm|mm256|builtin_ia32)_"
    )
    refuse(
        offences(dependent, *CORE, "native/python", allowed=in_arch_file),
        "A port to another machine writes one file: move this behind a function of native/*/arch_*.",
    )
    refuse(
        (name(path) for path in files("native", suffixes=(".S",)) if not in_arch_file(name(path))),
        "Assembler belongs to one machine: name the file arch_<machine>.S.",
    )


def test_native_code_does_not_print_or_end_the_process() -> None:
    printing = (
        r"\b(v?f?printf|v?dprintf|fputs|f?putc|puts|putchar|perror|psignal|v?syslog|v?warnx?|v?errx?)\s*\("
    )
    ending = r"\b(exit|_exit|_Exit|quick_exit|abort|assert)\s*\("
    refuse(
        offences(f"{printing}|{ending}", *CORE, "native/python"),
        "A library that prints or ends its process cannot be used as one: return a vlc_status and fill the "
        "caller's vlc_error (native/loader/error.h).",
    )


def test_native_code_has_no_constructors() -> None:
    # glibc hands main's arguments to constructors only, and libraries of a context expect them too. The
    # children's library must know libc's open() before a signal handler calls it.
    only = ("remember_arguments", "find_next")
    attribute = (
        r"__attribute__\s*\(\(.*\b(constructor|destructor)\b|section\s*\(\"\.(init|fini|preinit)_array"
    )
    refuse(
        (
            line
            for line in offences(attribute, *CORE, "native/python", view=without_comments)
            if not any(name in line for name in only)
        ),
        "Loading libvlcs.so must do nothing: set up on the first call that needs it.",
    )


def test_no_code_is_written_at_run_time() -> None:
    def statements() -> list[tuple[str, int, str]]:
        found = []
        for path in files(*CORE, "native/python", suffixes=NATIVE):
            line = 1
            for statement in code_only(path.read_text()).split(";"):
                found.append((name(path), line + statement.count("\n"), " ".join(statement.split())))
                line += statement.count("\n")
        return found

    both = re.compile(
        r"PROT_WRITE\s*\|\s*(PROT_READ\s*\|\s*)?PROT_EXEC|PROT_EXEC\s*\|\s*(PROT_READ\s*\|\s*)?PROT_WRITE"
    )
    refuse(
        (f"{file}:{line}: {text[-100:]}" for file, line, text in statements() if both.search(text)),
        "Memory that is writable and executable is refused by SELinux and MemoryDenyWriteExecute: map code "
        "from a file, without PROT_WRITE.",
    )
    late = re.compile(r"\b(pkey_)?mprotect\s*\([^;]*PROT_EXEC")
    refuse(
        (f"{file}:{line}: {text[-100:]}" for file, line, text in statements() if late.search(text)),
        "Making memory executable afterwards is refused by MemoryDenyWriteExecute: map it PROT_EXEC from its "
        "file at once.",
    )
