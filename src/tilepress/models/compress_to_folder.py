"""A model by name in, a folder with the compressed model out."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._safetensors import INDEX
from ..compression.search import Step
from .card import model_card
from .checkpoint_checks import Allowed
from .checksums import can_be_listed
from .compress import Compression, describe, read_windows
from .device import find_device
from .disk_storage import SEARCH, DiskStorage, refuse_foreign, refuse_nested
from .embedded import ModelUnavailableError
from .heal import Checkpoint, heal
from .importing import Importing
from .kept_records import RECORDS
from .left_dense import Dense
from .linear_form import to_linear_form
from .loading import Announce, is_compressed, load_model, load_tokenizer, model_folder, read_config, say
from .mantissas import choose_mantissas, with_activations_of
from .origin import origin_of
from .precision import Evaluations, Precision
from .quantized import BESIDE, QuantizedShards, is_readable, open_checkpoint
from .recipe import Recipe, read_recipe
from .registration import TilepressConfig, unpack_layers
from .shard_files import SHARD_BYTES
from .shards import Shards
from .share import Share
from .source_format import sample_layer, with_source_format
from .source_grid import announce_grids, with_source_grid
from .storage import Layer, Progress, Storage
from .streaming import StreamedModel
from .texts import calibration_name

COMPANIONS = {".json", ".txt", ".model", ".jinja", ".tiktoken"}


@dataclass(frozen=True)
class Opened:
    """A model whose files are open: by its name, which may be its folder."""

    name: str
    shards: Shards
    allowed: Allowed


Make = Callable[[Opened, nn.Module, Recipe, Tensor | None, Storage], Compression]


@dataclass(frozen=True)
class Outcome:
    """What was written to `folder`. `source_bytes`, `nbytes`: files of weights before and after. `seconds`: of this
    run; of one that went on with an interrupted one, without what had been finished. `dense`: the layers whose
    weights stay as they were. `precision`: of the search for Anda's mantissas, if there was one. `share`: how many
    parameters are packed."""

    folder: Path
    layers: list[Layer]
    source_bytes: int
    nbytes: int
    seconds: float
    dense: list[Dense] = field(default_factory=list)
    precision: Precision | None = None
    share: Share | None = None

    @property
    def bits_per_weight(self) -> float:
        """Of the packed layers."""
        weights = sum(layer.weights for layer in self.layers)
        return sum(layer.bits_per_weight * layer.weights for layer in self.layers) / weights


def compress_folder(
    name: str,
    out: str | Path,
    recipe: Recipe | Mapping[str, Any] | str | Path,
    *,
    progress: Callable[[Progress], None] = lambda _: None,
    track: Callable[[Step], None] = lambda _: None,
    trust_remote_code: bool = False,
    text_only: bool = False,
    device: str = "cpu",
    shard_bytes: int = SHARD_BYTES,
    announce: Announce = say,
    make: Make | None = None,
) -> Outcome:
    """Compress the model called `name`, see `model_folder`, into the folder `out`, one block in memory at a time.

    Each finished block is written at once, to `out`.partial; interrupted, the same call goes on from there, and gives
    the same bytes. A recipe that names no format of weights takes the one they came in, if that is one of 4 bits that
    `source_format` knows. `out` appears when all is done. `track` sees the steps of a search for Anda's mantissas.
    Blocks are then joined into files of weights of up to `shard_bytes`, one at a time. `trust_remote_code` and
    `text_only` are as of `load_model`, `device` as of `compress_model`. `make`: of the `Compression` that does it, if
    not here alone (see `tilepress.cluster`).
    """
    allowed = Allowed(trust_remote_code, text_only)
    start, out, recipe, place = time.monotonic(), Path(out), read_recipe(recipe), find_device(device)
    if make is not None and place.type != "cpu":
        raise ValueError(f"workers compute on CPUs, and the device is {device}: leave one of both out")
    refuse_foreign(out)
    folder = model_folder(name, announce, trust_remote_code=trust_remote_code)
    if is_compressed(folder):
        raise ValueError(f"{name} is compressed already: compress the model it was made from")
    read_config(folder, allowed, dequantised=is_readable(folder), any_head=True)
    refuse_nested(out, folder)
    companions = _companions(folder, trust_remote_code)
    windows = read_windows(recipe, load_tokenizer(folder, allowed)) if recipe.looks_at_text else None
    shards = open_checkpoint(folder)
    recipe = with_source_grid(recipe, name, shards, announce)
    model, source = open_model(folder, shards, allowed, announce)
    if recipe.weights.grid != "source":
        recipe = with_source_format(recipe, _sample(model, source), announce)
    elif source is not None and source.has_foreign_layers:
        raise ModelUnavailableError(
            f"{name} is quantised, and its layers are not those of the model (experts in tensors of their own, or "
            "Conv1D): it cannot be packed as it comes; --weights int4:g32, say, rounds it a second time"
        )
    job = _job(folder, shards, recipe, windows, place)
    with closing(DiskStorage(out, job, model, source, companions)) as storage:
        own = partial(make, Opened(name, shards, allowed)) if make else partial(Compression, device=place)
        compression, precision = _work(model, recipe, windows, storage, source, own), None
        layers, dense = compression.run(progress), compression.dense
        announce_grids(name, shards, recipe, layers, announce)

        def complete(recipe: Recipe = recipe) -> Path:
            storage.join(shard_bytes)
            known = {"calibration": _calibration(recipe, windows), "origin": origin_of(name, folder)}
            described = describe(layers, recipe, dense, name, compression.share, **known)
            card = model_card(described, type(model).__name__, (shards.nbytes(), storage.nbytes))
            return storage.complete(_config(folder, compression, described), card)

        written = complete()
        if recipe.weights.heal and recipe.weights.grid != "source":
            assert windows is not None
            dense_model = _dense(folder, shards, allowed, announce)
            _heal(dense_model, written, recipe, windows, storage, place, progress, allowed, announce)
            written = complete()
        if recipe.activations.search is not None:
            assert windows is not None
            whole = load_model(str(written), dtype=torch.float32, any_head=True, announce=announce, **asdict(allowed))
            judged = unpack_layers(whole.model).to(place)
            recipe, precision = choose_mantissas(judged, recipe, windows, Evaluations(storage.evaluations), track)
            layers = with_activations_of(judged, layers, recipe)
            complete(recipe)
        storage.publish()
    seconds, share = time.monotonic() - start, compression.share
    return Outcome(out, layers, shards.nbytes(), _weight_bytes(out), seconds, dense, precision, share)


def _work(
    model: nn.Module,
    recipe: Recipe,
    windows: Tensor | None,
    storage: DiskStorage,
    source: StreamedModel | None,
    make: Callable[[nn.Module, Recipe, Tensor | None, Storage], Compression],
) -> Compression | Importing:
    if recipe.weights.grid != "source":
        return make(model, recipe, windows, storage)
    assert source is not None
    return Importing(model, recipe, source.quantised_layers(), storage)


def _dense(folder: Path, shards: Shards, allowed: Allowed, announce: Announce) -> Any:
    """The whole model that is being compressed; what another tool quantised as its dense weights."""
    if not isinstance(shards, QuantizedShards):
        return load_model(str(folder), dtype=torch.float32, announce=announce, **asdict(allowed)).model
    source = StreamedModel(folder, shards, allowed, announce)
    model, tied = source.model, source.model.all_tied_weights_keys
    source.fetch([key for key in model.state_dict() if key not in tied])
    return model


def _heal(
    dense: nn.Module,
    written: Path,
    recipe: Recipe,
    windows: Tensor,
    storage: DiskStorage,
    device: torch.device,
    progress: Callable[[Progress], None],
    allowed: Allowed,
    announce: Announce,
) -> None:
    """Train the model in the folder `written`, which is not published yet, to give what `dense` does."""
    model = load_model(str(written), dtype=torch.float32, announce=announce, **asdict(allowed)).model
    steps, seed, checkpoint = recipe.weights.heal, recipe.calibration.seed, Checkpoint(storage.healing)
    types = storage.types()
    heal(model, dense, windows, steps, seed, types=types, device=device, checkpoint=checkpoint, progress=progress)
    storage.replace(model.state_dict())


def open_model(
    folder: Path, shards: Shards, allowed: Allowed, announce: Announce
) -> tuple[nn.Module, StreamedModel | None]:
    """The model in linear form, without weights, to be streamed; whole, where its files are not laid out as it is."""
    streamed = StreamedModel(folder, shards, allowed, announce)
    if streamed.complete:
        return streamed.model, streamed
    if isinstance(shards, QuantizedShards):
        raise ModelUnavailableError(
            f"{folder} is quantised by {shards.method}, in tensors that are not laid out as transformers has the model "
            "now (fused experts, say): give the model that it was made from"
        )
    announce(f"the files of {folder} are not laid out as transformers has the model now: loading all of it")
    model = load_model(str(folder), any_head=True, announce=announce, **asdict(allowed)).model
    to_linear_form(model)
    return model, None


def _sample(model: nn.Module, source: StreamedModel | None) -> Tensor | None:
    """The weight of the layer that the whole model's format is judged by."""
    name = sample_layer(model)
    if name is None or source is None:
        return None if name is None else model.get_submodule(name).get_parameter("weight").detach()
    return source.weight(name)


def _calibration(recipe: Recipe, windows: Tensor | None) -> dict[str, Any] | None:
    """The text that was looked at; a file without its folder, which is of this machine."""
    if windows is None:
        return None
    sequences, length = windows.shape
    name = Path(calibration_name(recipe.calibration.text)).name
    return {"text": name, "sequences": sequences, "length": length, "sha256": _digest(windows)}


def _digest(windows: Tensor) -> str:
    return hashlib.sha256(windows.numpy().tobytes()).hexdigest()


def _job(folder: Path, shards: Shards, recipe: Recipe, windows: Tensor | None, device: torch.device) -> dict[str, Any]:
    """All that the output depends on."""
    config = describe([], recipe)
    return {
        "device": device.type,
        "config": hashlib.sha256((folder / "config.json").read_bytes()).hexdigest(),
        "weights": shards.fingerprint(),
        "recipe": config.recipe,
        "version": config.version,
        "versions": config.versions,
        "calibration": None if windows is None else _digest(windows),
    }


def _config(folder: Path, compression: Compression | Importing, described: TilepressConfig) -> dict[str, Any]:
    """The model's config, or that of its language model alone where it is that, and what `registration` loads it by."""
    model: Any = compression.model
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    if "text_config" in config and config["model_type"] != model.config.model_type:
        stored = config.get("dtype", config.get("torch_dtype"))
        config = {"dtype": stored} | json.loads(model.config.to_json_string())
        config["architectures"] = [type(model).__name__]
    if compression.unties:
        config["tie_word_embeddings"] = False
    return config | {"quantization_config": described.to_dict()}


def _companions(folder: Path, with_code: bool) -> list[Path]:
    """The tokenizer's files, and whatever else is neither weights nor config; code only where that is trusted."""
    suffixes = COMPANIONS | ({".py"} if with_code else set())
    files = (path for path in sorted(folder.iterdir()) if path.is_file() and path.suffix in suffixes)
    written = ("config.json", INDEX, SEARCH, RECORDS, *BESIDE)
    companions = [path for path in files if path.name not in written and can_be_listed(path.name)]
    for path in companions:
        _refuse_link_out(path)
    return companions


def _refuse_link_out(path: Path) -> None:
    """What a link leads to is copied, and a folder from elsewhere may have one to any file of the user's. The hub's own
    cache has links, from `snapshots/ID` to `blobs` beside it."""
    folder, file = path.parent.resolve(), path.resolve()
    inside = [folder, *([folder.parent.parent / "blobs"] if folder.parent.name == "snapshots" else [])]
    if not any(file.is_relative_to(one) for one in inside):
        raise ValueError(f"{path} is a link out of the model's folder, to {file}: put the file itself there")


def _weight_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
