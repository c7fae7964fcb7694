"""The program of a worker process: `python -m vlcs._demo._serve FD`, told what to do through that pipe."""

import os
import sys
import traceback
from multiprocessing.connection import Connection

from vlcs._demo._pairs import pair_of
from vlcs._demo._ways import Contexts, Threads, Way
from vlcs._demo._worker import Order, Outcome


def _serve(connection: Connection) -> None:
    order: Order = connection.recv()
    pair = pair_of(order.pair)
    way: Way = (
        Contexts(pair, order.directory, order.halves) if order.halves else Threads(pair, order.directory)
    )
    with way:
        connection.send(None)  # ready
        while True:
            try:
                setting = connection.recv()
            except EOFError:
                return
            connection.send(Outcome(*way.run(setting)))


def _main() -> None:
    connection = Connection(int(sys.argv[1]))
    try:
        _serve(connection)
    except Exception:  # noqa: BLE001 -- whatever it was, the parent says it
        connection.send(traceback.format_exc())
        # Not by sys.exit: after a failure, exit handlers may wait for a thread that never ends.
        os._exit(1)


if __name__ == "__main__":
    _main()
