"""Where workers of Ray Serve listen."""

from typing import Any

import ray

from .on_ray import unknown_ray


def listen_at_node() -> None:
    """To be called early in a worker: Ray Serve would let it listen to calls at all addresses of its machine. The
    address by which the cluster knows the machine is enough, and is 127.0.0.1 for a Ray of this machine alone."""
    try:
        from ray.serve._private import replica

        add = replica.add_port_to_grpc_server
    except (AttributeError, ImportError) as error:
        raise RuntimeError(unknown_ray(error)) from error
    node = ray.util.get_node_ip_address()

    def add_at_node(server: Any, address: str) -> Any:
        return add(server, address.replace("[::]", f"[{node}]" if ":" in node else node))

    replica.add_port_to_grpc_server = add_at_node
