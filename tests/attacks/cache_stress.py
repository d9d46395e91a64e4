"""Threads that use one cache without asking each other: `python cache_stress.py SECONDS THREADS`.

A program of its own, since a cache that is not safe takes the whole process with it.
"""

import sys
import threading
import time
from random import Random

import torch

from tilepress.formats.kv import parse_kv
from tilepress.kernels.kv_store import kv_store

CACHES = [("bfp4", {}), ("bfp4", {"smoothed_channels": 4}), ("bfp8+sparse:k30,v50", {}), ("sparse:k30,v50", {})]
MOST = 300  # tokens


def tokens(count, batch, random):
    generator = torch.Generator().manual_seed(random.randrange(1 << 30))
    return [torch.randn(batch, heads, count, 32, generator=generator) for heads in (4, 2, 2)]


def use(cache, random):
    """Something that a cache can do. Sequences may have become more or fewer since they were counted: ValueError."""
    lengths, count = cache.lengths, random.choice([1, 1, 1, 33])
    queries, keys, values = tokens(count, len(lengths), random)
    what = "crop" if max(lengths) > MOST else random.choice(["append", "attend", "crop", "select", "save"])
    if what == "append":
        cache.append(keys, values, threads=random.choice([1, 2]))
    elif what == "attend":
        assert cache.attend(queries, keys, values, 0.125, threads=random.choice([1, 2])).isfinite().all()
    elif what == "crop":
        cache.crop([max(length - random.randrange(2 * MOST), 0) for length in lengths])
    elif what == "select":
        cache.select([random.randrange(len(lengths)) for _ in range(random.choice([1, 2, 3]))])
    else:
        assert cache.state() and cache.nbytes


def stress(name, options, seconds, threads):
    cache = kv_store(parse_kv(name), 2, 2, 32, **options)
    until, errors, calls = time.monotonic() + seconds, [], [0] * threads

    def go_on(number):
        random = Random(number)
        while time.monotonic() < until and not errors:
            try:
                use(cache, random)
            except ValueError:
                pass
            except BaseException as error:
                errors.append(error)
            calls[number] += 1

    workers = [threading.Thread(target=go_on, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    twin = kv_store(parse_kv(name), 2, 2, 32, **options)
    twin.restore(cache.lengths, cache.state())  # which refuses what does not fit together
    print(f"{name} {options}: {sum(calls)} calls by {threads} threads")


if __name__ == "__main__":
    torch.set_num_threads(2)
    for name, options in CACHES:
        stress(name, options, float(sys.argv[1]) / len(CACHES), int(sys.argv[2]))
