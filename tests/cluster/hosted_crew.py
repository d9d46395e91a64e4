"""A crew in this process, for tests: each call at once, with copies of what is sent, as processes would have them."""

import pickle
from itertools import islice

import torch

from tilepress.cluster import InProcess
from tilepress.cluster.crew import WorkerLost
from tilepress.cluster.host import Host, versions


class HostedCrew:
    """`dies`: the numbers of the calls that end with the death of a worker."""

    def __init__(self, size, calls, dies):
        self.size, self._calls, self._dies = size, calls, dies
        self._hosts = [Host() for _ in range(size)]

    def start(self, worker, function, *arguments):
        return self._do(self._hosts[worker].start, versions(), function, arguments)

    def call(self, worker, method, *arguments):
        return self._do(self._hosts[worker].call, method, *arguments)

    def _do(self, function, *arguments):
        self._calls.append(arguments)
        if len(self._calls) in self._dies:
            raise WorkerLost("a worker process was killed")
        return copied(function(*copied(arguments)))

    def get(self, reference):
        return reference

    def close(self):
        self._hosts.clear()


class HostedExecutor:
    """Workers that are this process. `calls`: all calls of all its crews."""

    def __init__(self, workers, threads=1, dies=()):
        self.workers, self.threads, self.dies, self.calls, self.crews = workers, threads, dies, [], 0

    def run(self, batches):
        """With as many under way as there are workers: the next are asked for before the first has ended."""
        waiting, under_way = iter(batches), []
        while under_way := [*under_way, *islice(waiting, self.workers - len(under_way))]:
            yield from InProcess().run([under_way.pop(0)])

    def crew(self, most):
        self.crews += 1
        return HostedCrew(min(self.workers, most), self.calls, self.dies)


def copied(value):
    with torch.inference_mode(False):
        return pickle.loads(pickle.dumps(value, 5))
