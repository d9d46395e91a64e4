"""A compressed model that is being written: beside its place, stage by stage, so that an interrupted run can go on.

    OUT.partial/job.json     what is being made of what; a run with anything else is refused
    OUT.partial/blocks/      the weights of each finished stage, until they are joined into files of up to 4 GB
    OUT.partial/finished/    the layers of each finished stage, written when its file is whole
    OUT.partial/joined.json  which stages go into which file of weights; written before the first is joined
    OUT.partial/model/       the files of the finished folder; and search.json, the perplexities of combinations of
                             mantissas, where those are searched for
    OUT.partial/healing.safetensors   where training of the whole model stands, if the recipe has any
    OUT.partial/hidden/      the inputs of the next stage, in the dense stream, too, where a method asks for it

At the end `model` takes OUT's place, see `publish`. A stage lost to an interrupt is done again from the inputs that
are there. Blocks are deleted as soon as the file that they are joined into is whole, so the disk needs room for the
compressed model and one such file; a kill meanwhile loses at most that file, and its blocks are still there.
"""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .._files import replacing, sync, write_text
from .._safetensors import INDEX, SINGLE, is_whole_model, read_arrays
from .blocks import REST, find_blocks, stage_state
from .checksums import CARD, SUMS, digests_of, write_sums
from .loading import is_compressed
from .publish import LOCK, MAKE_ROOM, MODEL, OutputError, publish, recover, refuse_clashes
from .quantized import SourceWeight
from .shard_files import SHARD_BYTES, join_files, plan_shards, shard_names
from .storage import Layer, Stream
from .streaming import StreamedModel, release_stage

SEARCH, JOINED = "search.json", "joined.json"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what a disc, a quota or a limit of files says


class DiskStorage:
    """The storage (`compress.Storage`) of one job; `source` is None where the model has all its weights.

    `companions`: files that are copied as they are.
    """

    def __init__(
        self,
        out: Path,
        job: Mapping[str, Any],
        model: nn.Module,
        source: StreamedModel | None,
        companions: Iterable[Path] = (),
    ) -> None:
        self._out, self._model, self._source = out.resolve(), model, source
        self._root = self._out.with_name(self._out.name + ".partial")
        self._blocks = list(find_blocks(model))
        self._companions = {path.name: path for path in companions}
        self._hidden: dict[tuple[str, Stream], Tensor] = {}
        _make_folder(self._root)
        self._lock = _lock(self._root)
        try:
            self._begin(json.dumps(job, indent=1, sort_keys=True))
        except BaseException:
            self.close()
            if os.listdir(self._root) == [LOCK]:
                shutil.rmtree(self._root)
            raise

    def close(self) -> None:
        """Release the lock; what is finished stays."""
        self._lock.close()

    def finished(self, stage: str) -> list[Layer] | None:
        mark = self._mark(stage)
        if not mark.exists() or not (self._block(stage).exists() or self._is_joined(stage)):
            return None  # the files are gone where a run was interrupted after it had given them their place
        return [Layer(**{**layer, "shape": tuple(layer["shape"])}) for layer in json.loads(mark.read_text())]

    def fetch(self, stage: str) -> None:
        if self._source is not None:
            self._source.fetch(stage_state(self._model, stage, self._blocks))

    def source_weight(self, layer: str) -> SourceWeight | None:
        """The layer's weight as another tool quantised it, if one did."""
        return None if self._source is None else self._source.source_weight(layer)

    def release(self, stage: str) -> None:
        release_stage(self._model, self._source, stage, self._blocks)

    def hidden(self, stage: str, shape: tuple[int, ...], stream: Stream = "compressed") -> Tensor:
        if (stage, stream) not in self._hidden:
            name = f"{self._number(stage)}-{stream}"
            saved = next((self._root / "hidden").glob(f"{name}.*"), None)
            if saved is not None and len(shape) == 1:
                shape = tuple(map(int, saved.suffix.removeprefix(".").split("x")))
            path = self._root / "hidden" / f"{name}.{'x'.join(map(str, shape))}"
            _reserve(path, prod(shape) * torch.float32.itemsize)
            self._hidden[stage, stream] = torch.from_file(str(path), shared=True, size=prod(shape)).view(shape)
        return self._hidden[stage, stream]

    def finish(self, stage: str, layers: list[Layer]) -> None:
        tensors = {key: tensor.detach() for key, tensor in stage_state(self._model, stage, self._blocks).items()}
        with _told_if_full(self._root):
            for path in (self._root / "hidden").iterdir():
                sync(path)
            self._write(self._block(stage), tensors)
            write_text(self._mark(stage), json.dumps([asdict(layer) for layer in layers]))
        self.release(stage)
        for stream in get_args(Stream):
            self._hidden.pop((stage, stream), None)
        for path in (self._root / "hidden").glob(f"{self._number(stage)}-*"):
            path.unlink()

    def _write(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        try:
            with replacing(path) as made:
                save_file(dict(tensors), made, {"format": "pt"})
        except (SafetensorError, OSError) as error:
            raise OutputError(f"a block cannot be written to {self._root} ({error}): {MAKE_ROOM}") from error

    def join(self, most: int = SHARD_BYTES) -> None:
        """Make files of up to `most` bytes of the finished stages, as far as that is not done yet."""
        try:
            if not (plan := self._plan()):
                sizes = [self._block(stage).stat().st_size for stage in self._stages]
                write_text(self._root / JOINED, json.dumps(plan_shards(sizes, most)))
                plan = self._plan()
            for name, stages in plan.items():
                blocks = [self._block(stage) for stage in stages]
                if not (self._root / MODEL / name).exists():
                    join_files(blocks, self._root / MODEL / name)
                for block in blocks:
                    block.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(f"blocks cannot be joined in {self._root} ({error}): {MAKE_ROOM}") from error

    def _plan(self) -> dict[str, list[str]]:
        """Name of each file of weights → its stages; empty before it is made."""
        path = self._root / JOINED
        if not path.exists():
            return {}
        plan = json.loads(path.read_text())
        stages = ([self._stages[index] for index in indices] for indices in plan)
        return dict(zip(shard_names(len(plan)), stages, strict=True))

    def _is_joined(self, stage: str) -> bool:
        names = (name for name, stages in self._plan().items() if stage in stages)
        return any((self._root / MODEL / name).exists() for name in names)

    def _shards(self) -> list[Path]:
        return [self._root / MODEL / name for name in self._plan()]

    @property
    def healing(self) -> Path:
        """The file of healing's checkpoint; it goes when the model is published."""
        return self._root / "healing.safetensors"

    def types(self) -> dict[str, torch.dtype]:
        """Of all tensors of a model that is joined."""
        files = map(load_file, self._shards())
        return {name: tensor.dtype for file in files for name, tensor in file.items()}

    def replace(self, state: Mapping[str, Tensor]) -> None:
        """Tensors of a model that is joined take the values that `state` has for them, in the types that they have."""
        for path in self._shards():
            stored = load_file(path)
            new = {name: state[name].detach().to(old.dtype) for name, old in stored.items() if name in state}
            self._write(path, stored | new)

    @property
    def evaluations(self) -> Path:
        """The file of a search's evaluations; it stays with the model."""
        return self._root / MODEL / SEARCH

    @property
    def nbytes(self) -> int:
        """Of the files of weights, once they are joined."""
        return sum(path.stat().st_size for path in self._shards())

    def complete(self, config: dict[str, Any], card: str) -> Path:
        """Add what makes the joined files a model, to the folder returned, and its `card`."""
        with _told_if_full(self._root):
            return self._completed(config, card)

    def _completed(self, config: dict[str, Any], card: str) -> Path:
        model = self._root / MODEL
        for name, path in self._companions.items():
            with replacing(model / name) as made:
                shutil.copyfile(path, made)
        if len(shards := self._shards()) > 1:
            write_text(model / INDEX, json.dumps(_index(shards), indent=2, sort_keys=True))
        write_text(model / "config.json", json.dumps(config, indent=2))
        write_text(model / CARD, card)
        listed = [*(path.name for path in shards), INDEX, "config.json", SEARCH, *self._companions]
        write_sums(model, digests_of(model, [name for name in listed if (model / name).exists()]))
        return model

    def publish(self) -> None:
        """Give the folder its name."""
        try:
            publish(self._root, self._out)
        except OSError as error:
            raise OutputError(
                f"the finished model cannot take its place at {self._out} ({error}), and what is there is untouched: "
                "mend that, or move it away, and the same command goes on"
            ) from error

    def _begin(self, job: str) -> None:
        """End what a killed run left undone; then OutputError if the place is somebody else's."""
        try:
            recover(self._root, self._out)
        except OSError as error:
            raise OutputError(
                f"{self._root} holds a model that cannot be moved to {self._out} ({error}): move one of them away"
            ) from error
        refuse_foreign(self._out)
        refuse_clashes(self._out, self._files())
        for folder in (MODEL, "blocks", "finished", "hidden"):
            _make_folder(self._root / folder)
        self._accept(job)

    def _files(self) -> dict[str, Path | None]:
        """Name of each file that the finished folder may have → what it is a copy of, if it is one."""
        there = os.listdir(self._out) if self._out.is_dir() else []
        weights = [SINGLE, *filter(is_whole_model, there)]  # how many there will be is not known before the end
        return dict.fromkeys([*weights, INDEX, "config.json", SEARCH, SUMS, CARD]) | self._companions

    def _accept(self, job: str) -> None:
        path = self._root / "job.json"
        if not path.exists():
            with _told_if_full(self._root):
                write_text(path, job)
        elif path.read_text() != job:
            raise OutputError(
                f"{self._root} holds the finished blocks of another model, recipe or version: run the command that "
                "began it, delete that folder, or choose another output"
            )

    def _number(self, stage: str) -> int:
        return self._stages.index(stage) + 1

    @property
    def _stages(self) -> list[str]:
        return [*self._blocks, REST]

    def _block(self, stage: str) -> Path:
        return self._root / "blocks" / f"{self._number(stage)}.safetensors"

    def _mark(self, stage: str) -> Path:
        return self._root / "finished" / f"{self._number(stage)}.json"


def _index(shards: list[Path]) -> dict[str, Any]:
    names = {name: path.name for path in shards for name in read_arrays(path)}
    size = sum(path.stat().st_size for path in shards)
    return {"metadata": {"total_size": size}, "weight_map": names}


def refuse_foreign(out: Path) -> None:
    """An existing folder may be replaced if it is empty or one of ours."""
    if out.is_mount():
        raise OutputError(f"{out} is a mount point, which cannot be replaced: give a folder in it")
    if out.is_dir() and (not any(out.iterdir()) or is_compressed(out)):
        return
    if out.exists():
        raise OutputError(f"{out} exists and is not a model that tilepress wrote: choose another output, or move it")


def refuse_nested(out: Path, source: Path) -> None:
    """A folder inside the other would be copied with it, or lost when it is replaced."""
    ours, theirs = out.resolve(), source.resolve()
    if theirs in ours.parents or ours in theirs.parents:
        raise OutputError(f"{out} and the model's folder {source} lie one in the other: choose another output")


def _lock(root: Path) -> Any:
    """Held as long as the file is open; the system lets go of it when the process ends, however it does."""
    file = open(root / LOCK, "w")  # noqa: SIM115  # open as long as the job lasts
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise OutputError(f"another tilepress is writing {root}: wait for it, or choose another output") from error
    return file


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be made ({error.strerror}): choose another output") from error


@contextmanager
def _told_if_full(root: Path) -> Iterator[None]:
    """OutputError where there is no room for what is written meanwhile. What was finished before stays."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise OutputError(f"{root} cannot be written to ({error.strerror}): {MAKE_ROOM}") from error


def _reserve(path: Path, size: int) -> None:
    """A file of `size` bytes with room on the disc for all of them: writing to a mapped one without would kill us."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.posix_fallocate(file, 0, size)
    except OSError as error:
        raise OutputError(f"{path} cannot be {size / 1e6:.0f} MB large ({error.strerror}): {MAKE_ROOM}") from error
    finally:
        os.close(file)
