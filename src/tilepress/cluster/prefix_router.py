"""What Ray Serve asks where a request shall go. A file of its own, as it cannot be imported without Ray."""

from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from .routing import ranked


class PrefixRouter(RequestRouter):  # type: ignore[misc]  # Ray has no types here
    """By `routing.ranked`; the first argument of a call is its key."""

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        by_name: dict[str, Any] = {one.replica_id.unique_id: one for one in candidate_replicas}
        # A load that is not known counts as none: Ray asks the replica for it before it sends anything.
        loads = {name: self.replica_queue_len_cache.get(one.replica_id) or 0 for name, one in by_name.items()}
        key = pending_request.args[0] if pending_request and pending_request.args else ""
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # where all replicas are full
        return [[by_name[name]] for name in ranked(key, loads)]
