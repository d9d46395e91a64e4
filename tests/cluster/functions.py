"""What batches of these tests call, in whichever process."""

import os
import signal
import time
from pathlib import Path

from tilepress.records import Record


def square(point, command):
    return [Record("square", {"of": point["of"]}, point["of"] ** 2, "", "model", "a machine", command)]


def slow_square(point, command):
    """Leaves a line in a file for each time that it is called."""
    with Path(point["log"]).open("a") as log:
        log.write(f"{point['of']}\n")
    time.sleep(point["seconds"])
    return square(point, command)


def refuse(point, command):
    if point["of"] % 2:
        raise ValueError(f"{point['of']} is odd\nand that is all")
    return square(point, command)


def fill_disk(point, command):
    if point["of"] == 1:
        raise OSError(28, "No space left on device", "/tmp/somewhere")
    return square(point, command)


def die_once(point, command):
    """The first time that it is called with a 1."""
    mark = Path(point["mark"])
    if point["of"] == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return square(point, command)


def die(point, command):
    if point["of"] == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return square(point, command)


def leave(point, command):
    os._exit(3)


def chatter(point, command):
    os.write(1, b"not an answer\n")
    print("nor is this")
    return square(point, command)


def threads(point, command):
    return [Record("threads", {}, os.environ["OMP_NUM_THREADS"], "", "model", "a machine", command)]


def slow_square_of_queue(point, command):
    time.sleep(0.3)
    return square_of_queue(point, command)


def fill_disk_by_queue(point, command):
    """In the place of a simulation of DECA."""
    if point["queue"] == 8:
        raise OSError(28, "No space left on device", "/tmp/somewhere")
    return square_of_queue(point, command)


def square_of_queue(point, command):
    """In the place of a simulation of DECA."""
    time.sleep(0.02)
    labels = {"width": point["width"], "queue": point["queue"]}
    return [Record("square", labels, point["queue"] ** 2, "", "model", "a machine", command)]
