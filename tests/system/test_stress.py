"""Calls of all kinds from many threads into several contexts; .ci/run has AddressSanitizer watch it too."""

from __future__ import annotations

import os

from support.child import run_child

CALLS = os.environ.get("VLCS_STRESS_CALLS", "4000")


def test_mixed_calls_from_eight_threads_into_four_contexts() -> None:
    run_child(
        """
        import gc, json, math, operator, random, sys, threading, numpy as np, vlcs
        from typing import cast
        calls = int(sys.argv[1])
        contexts = [vlcs.VLC(name, threads=2) for name in "abcd"]
        array = np.arange(1000.0).reshape(20, 50)
        class Own:
            def __init__(self, x): self.x = x
        class Two(Exception):
            def __init__(self, one, two): super().__init__(one)
        def raising(kind):
            if kind == 0: raise Two(1, 2)
            if kind == 1: raise ExceptionGroup("g", [Two(1, 2), ValueError(3)])
            error = ValueError("held")
            error.lock = __import__("threading").Lock()
            raise error
        class Refused:
            def __reduce__(self): return operator.truediv, (1, 0)
        def raises(kinds, call, *args):
            try:
                call(*args)
            except kinds:
                return True
        modules = {vlc: vlc.import_module("fractions") for vlc in contexts}
        kinds = [
            lambda vlc, n: vlc.run(operator.add, n, 1) == n + 1,
            lambda vlc, n: vlc.run(list, ("x", {"y": 1.5}, {n}, 1 << n % 200))[2:] == [{n}, 1 << n % 200],
            lambda vlc, n: vlc.run(cast, None, [[n]] * 3) == [[n]] * 3,
            lambda vlc, n: vlc.run(cast, None, array)[1, 0] == 50,
            lambda vlc, n: vlc.run(cast, None, [array[::2, ::-1], object])[0][1, 0] == 149,
            lambda vlc, n: vlc.run(np.full, 100, n)[99] == n,
            lambda vlc, n: vlc.run(lambda own: own.x, Own(n)) == n,
            lambda vlc, n: vlc.run(cast, None, Own(n)).x == n,
            lambda vlc, n: vlc.run(len, bytearray(n % 5000)) == n % 5000,
            lambda vlc, n: bytes(vlc.run(cast, None, memoryview(b"x" * (n % 50)))) == b"x" * (n % 50),
            lambda vlc, n: raises(ZeroDivisionError, vlc.run, operator.truediv, n, 0),
            lambda vlc, n: raises(json.JSONDecodeError, vlc.run, json.loads, "{"),
            lambda vlc, n: raises((Two, ValueError, ExceptionGroup), vlc.run, raising, n % 3),
            lambda vlc, n: raises(vlcs.PicklingError, vlc.run, cast, None, threading.Lock()),
            lambda vlc, n: raises(vlcs.PicklingError, vlc.run, cast, None, Refused()),
            lambda vlc, n: raises(vlcs.PicklingError, vlc.run, threading.Lock),
            lambda vlc, n: vlc.submit(operator.mul, n, 2).result() == 2 * n,
            lambda vlc, n: modules[vlc].Fraction(n, n + 1).numerator == n,
            lambda vlc, n: str(modules[vlc].Fraction(1, 2)) == "1/2" and not hasattr(modules[vlc], "no"),
            lambda vlc, n: contexts[n % 4].run(cast, None, vlc.run(np.arange, n % 100 + 1))[-1] == n % 100,
        ]
        wrong = []
        def work(number):
            chance = random.Random(number)
            for step in range(calls // 8):
                kind, vlc = chance.randrange(len(kinds)), chance.choice(contexts)
                try:
                    good = kinds[kind](vlc, step)
                except BaseException as error:
                    good, kind = False, (kind, error)
                if not good:
                    wrong.append((number, step, kind))
                    return
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert not wrong, wrong
        for vlc in contexts: vlc.run(gc.collect)
        gc.collect()
        for vlc in contexts: vlc.run(len, "")
        assert [vlc.stats().leases for vlc in contexts] == [0] * 4
        for vlc in contexts: vlc.close()
        """,
        args=[CALLS],
        timeout=100 + int(CALLS) // 100,
    )


def test_contexts_that_close_in_the_middle_of_calls() -> None:
    run_child(
        """
        import operator, random, sys, threading, time, numpy as np, vlcs
        from typing import cast
        rounds = max(4, int(sys.argv[1]) // 1000)
        wrong = []
        held = []
        def work(vlc, number):
            chance = random.Random(number)
            array = np.arange(100.0)
            try:
                while True:
                    kind = chance.randrange(6)
                    if kind == 0: vlc.run(operator.add, 1, 2)
                    elif kind == 1: held.append(vlc.run(np.ones, 50))
                    elif kind == 2: vlc.run(lambda x: x.sum(), array)
                    elif kind == 3: vlc.submit(operator.add, 1, 2).result()
                    elif kind == 4: vlc.import_module("fractions").Fraction(1, 2).numerator
                    else:
                        try: vlc.run(operator.truediv, 1, 0)
                        except ZeroDivisionError: pass
            except vlcs.StateError:
                pass
            except BaseException as error:
                wrong.append(error)
        for number in range(rounds):
            vlc = vlcs.VLC(f"context{number}", threads=2)
            threads = [threading.Thread(target=work, args=(vlc, i)) for i in range(4)]
            for thread in threads: thread.start()
            time.sleep(random.Random(number).random() * 0.1)
            vlc.close()
            for thread in threads: thread.join()
            assert not wrong, wrong
            if number % 3 == 0:
                held.clear()
        assert all((array == 1).all() for array in held)
        """,
        args=[CALLS],
        timeout=100 + int(CALLS) // 100,
    )
