"""Mutations of safetensors files that `tilepress.tiles.sealed` wrote, sealed again so that checks behind the digests
are reached."""

import hashlib
import json
import re
from random import Random
from typing import Any

from .mutate import mutated_bytes, mutated_text, mutated_tree

METADATA, KEY = "__metadata__", "tilepress"
DIGEST = re.compile(rb'\\"digest\\": \\"([0-9a-f]{64})')


def split(content: bytes) -> tuple[dict[str, Any], bytes]:
    """(safetensors' table of arrays and metadata, the arrays' bytes)."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def joined(table: Any, arrays: bytes) -> bytes:
    """The file that `split` would split so, with the right digest."""
    text = table if isinstance(table, bytes) else json.dumps(table, separators=(",", ":")).encode("utf-8", "replace")
    text += b" " * (-len(text) % 8)
    return _sealed(len(text).to_bytes(8, "little") + text) + arrays


def _sealed(head: bytes) -> bytes:
    match = DIGEST.search(head)
    if match is None:
        return head
    start, end = match.span(1)
    blank = head[:start] + b"0" * 64 + head[end:]
    return head[:start] + hashlib.sha256(blank).hexdigest().encode() + head[end:]


def damaged(content: bytes, random: Random) -> bytes:
    """Other bytes than `content`, half of the time in the header: what a disk or a network does, with no digest
    corrected."""
    end = 8 + int.from_bytes(content[:8], "little")
    mutant = content
    while mutant == content:
        start = random.random() < 0.5
        mutant = mutated_bytes(content[:end], random) + content[end:] if start else mutated_bytes(content, random)
    return mutant


def forged(content: bytes, random: Random) -> bytes:
    """Something else under right digests: what an attacker does."""
    return random.choice((_other_metadata, _other_metadata, mutated_table, _other_text, _other_arrays))(content, random)


def _other_metadata(content: bytes, random: Random) -> bytes:
    table, arrays = split(content)
    table[METADATA][KEY] = json.dumps(mutated_tree(json.loads(table[METADATA][KEY]), random))
    return joined(table, arrays)


def mutated_table(content: bytes, random: Random) -> bytes:
    """Names, types, shapes and places of arrays."""
    table, arrays = split(content)
    metadata = {METADATA: table.pop(METADATA)} if METADATA in table else {}
    table = mutated_tree(table, random)
    return joined({**metadata, **table} if isinstance(table, dict) else table, arrays)


def _other_text(content: bytes, random: Random) -> bytes:
    """The header as text, which may be no JSON any more."""
    table, arrays = split(content)
    text = json.dumps(table, separators=(",", ":"))
    return joined(mutated_text(text, random).encode("utf-8", "replace"), arrays)


def _other_arrays(content: bytes, random: Random) -> bytes:
    """Other bytes in one array, and its SHA-256 wherever the header has it."""
    table, arrays = split(content)
    name = random.choice([name for name in table if name != METADATA])
    start, end = table[name]["data_offsets"]
    if start == end:
        return _other_metadata(content, random)
    old = arrays[start:end]
    new = mutated_bytes(old, random)[: end - start].ljust(end - start, b"\0")
    header = table[METADATA][KEY].replace(hashlib.sha256(old).hexdigest(), hashlib.sha256(new).hexdigest())
    table[METADATA][KEY] = header
    return joined(table, arrays[:start] + new + arrays[end:])
