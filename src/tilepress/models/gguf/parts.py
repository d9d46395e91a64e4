"""GGUF files that llama.cpp's `gguf-split` has cut into parts, NAME-00001-of-00003.gguf and so on: put together again.

The first part has the metadata, each part some of the tensors. All parts must lie in one folder.
"""

import re
from pathlib import Path
from typing import Any

from ..embedded import ModelUnavailableError

PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
MERGE = "put all parts into one folder under the names they came with, or join them with `llama-gguf-split --merge`"


def parts_of(path: Path) -> list[Path]:
    """The parts of the split file that `path` is named as one of, those that are there; else `path` alone."""
    return [part for part in _all_parts(path) if part.is_file()] or [path]


def merge_parts(path: Path, target: Path) -> bool:
    """Write a whole file to `target` if `path` is a part of one; False if it is whole itself."""
    from gguf import GGUFReader

    parts = _all_parts(path)
    if not parts:
        _refuse_renamed_part(path)
        return False
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise ModelUnavailableError(f"{path} is one of {len(parts)} parts, without {', '.join(missing)}: {MERGE}")
    readers = [GGUFReader(part) for part in parts]
    _check_numbers(parts, readers)
    _write(readers, target)
    return True


def _all_parts(path: Path) -> list[Path]:
    match = PART.fullmatch(path.name)
    if match is None:
        return []
    count, ending = int(match["count"]), path.suffix
    names = (f"{match['stem']}-{number:05d}-of-{count:05d}{ending}" for number in range(1, count + 1))
    return [path.with_name(name) for name in names]


def _refuse_renamed_part(path: Path) -> None:
    from transformers.integrations.gguf.reader import read_gguf_metadata

    metadata, _ = read_gguf_metadata(str(path))
    count = metadata.get("split.count", 0)
    if count > 1:
        number = metadata.get("split.no", 0) + 1
        raise ModelUnavailableError(f"{path} is part {number} of {count} of a split GGUF file: {MERGE}")


def _check_numbers(parts: list[Path], readers: list[Any]) -> None:
    """Each part says itself which one it is, and the first how many tensors there are."""
    for number, (part, reader) in enumerate(zip(parts, readers, strict=True)):
        stated = _value(reader, "split.no"), _value(reader, "split.count")
        if stated != (number, len(parts)):
            raise ModelUnavailableError(f"{part} is not the part that its name says: fetch it again")
    total = sum(len(reader.tensors) for reader in readers)
    if total != _value(readers[0], "split.tensors.count"):
        raise ModelUnavailableError(f"the parts of {parts[0]} hold {total} tensors, not as many as it says: {MERGE}")


def _write(readers: list[Any], target: Path) -> None:
    from gguf import GGUFValueType, GGUFWriter

    writer = GGUFWriter(target, _value(readers[0], "general.architecture"))
    for name, field in readers[0].fields.items():
        if name != "general.architecture" and not name.startswith(("GGUF.", "split.")):
            kind = field.types[0]
            inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), kind, inner)
    tensors = [tensor for reader in readers for tensor in reader.tensors]
    for one in tensors:
        writer.add_tensor_info(one.name, one.data.shape, one.data.dtype, one.data.nbytes, one.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for one in tensors:
        writer.write_tensor_data(one.data)
    writer.close()


def _value(reader: Any, key: str) -> Any:
    field = reader.get_field(key)
    return None if field is None else field.contents()
