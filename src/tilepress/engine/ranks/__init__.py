"""One model computed by several processes, each with its part of every layer: a process a NUMA node, say."""
