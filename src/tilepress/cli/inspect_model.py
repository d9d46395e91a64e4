"""What `tilepress inspect` prints and records of a model."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from .._safetensors import DamagedError
from ..models.names import pattern
from .output import Recorder, print_table, progress

if TYPE_CHECKING:
    from ..models.inspection.compressed import CompressedFolder, PackedLayer
    from ..models.inspection.dense import DenseModel, Tensor


def show_compressed(model: "CompressedFolder", json: bool) -> None:
    """DamagedError, after everything is shown, where the folder is not as it was written."""
    with progress(json) as bar:
        bar.add_task("checking SHA256SUMS", total=None)
        damage = model.damage()
    if json:
        _record_compressed(model, damage).print_json()
    else:
        kept = sum(one.nbytes for one in model.kept.values())
        title = f"{model.path}: {len(model.layers)} packed layers, {model.nbytes / 1e6:.1f} MB of weights"
        columns = ["layers", "format", "activations", "count", "neurons", "inputs", "density", "bytes", "bits/weight"]
        print_table(title, columns, [_plain(_kind_row(layers)) for layers in _kinds(model.layers)], words=3)
        rows = [
            ["bits per weight, of packed layers", f"{model.bits_per_weight:.3f}"],
            ["not packed", f"{len(model.kept)} arrays, {kept / 1e6:.3f} MB"],
            *([name, value] for name, value in _facts(model).items()),
            ["SHA256SUMS", "holds" if damage is None else "does not hold"],
        ]
        print_table("", ["", ""], map(_plain, rows), words=2)
    if damage is not None:
        raise DamagedError(damage)


def _record_compressed(model: "CompressedFolder", damage: str | None) -> Recorder:
    recorder = Recorder(model=str(model.path))
    recorder.add("size", model.nbytes, "B")
    recorder.add("bits_per_weight", model.bits_per_weight, "bit")
    recorder.add("kept_size", sum(one.nbytes for one in model.kept.values()), "B")
    recorder.add("sums_hold", damage is None)
    for name, value in _facts(model).items():
        recorder.add("fact", value, subject=name)
    for layer in model.layers:
        recorder.add("format", layer.format, layer=layer.name)
        recorder.add("activations", layer.activations, layer=layer.name)
        recorder.add("rows", layer.shape[0], "neurons", layer=layer.name)
        recorder.add("cols", layer.shape[1], "inputs", layer=layer.name)
        recorder.add("density", layer.density, layer=layer.name)
        recorder.add("size", layer.nbytes, "B", layer=layer.name)
        recorder.add("bits_per_weight", layer.bits_per_weight, "bit", layer=layer.name)
    return recorder


def _kinds(layers: "Iterable[PackedLayer]") -> "Iterator[list[PackedLayer]]":
    """Layers of one name in every block, one format, one shape."""
    kinds: dict[tuple[Any, ...], list[PackedLayer]] = {}
    for layer in layers:
        key = (pattern(layer.name), layer.format, layer.activations, layer.shape)
        kinds.setdefault(key, []).append(layer)
    yield from kinds.values()


def _kind_row(layers: "Sequence[PackedLayer]") -> list[str]:
    first, size, weights = layers[0], sum(one.nbytes for one in layers), sum(one.weights for one in layers)
    density = sum(one.density for one in layers) / len(layers)
    name = pattern(first.name) + (f" and {first.tied}" if first.tied else "")
    neurons, inputs = first.shape
    figures = [str(len(layers)), str(neurons), str(inputs), f"{density:.3f}", str(size), f"{8 * size / weights:.3f}"]
    return [name, first.format, first.activations, *figures]


def _facts(model: "CompressedFolder") -> dict[str, str]:
    """Recipe and origin, in words."""
    stated, config = model.stated, model.config
    recipe = _mapping(stated.get("recipe"))
    classes = config.get("architectures")
    facts = {"architecture": ", ".join(map(str, classes)) if isinstance(classes, list) else "not stated"}
    facts["made from"] = str(stated.get("source") or "a model in memory")
    facts |= {"made with": ", ".join(f"{name} {one}" for name, one in _mapping(stated.get("versions")).items())}
    facts["calibration text"] = _calibration(stated)
    facts |= {f"recipe, {section.replace('_', ' ')}": _section(value) for section, value in recipe.items()}
    facts["embedding and output layer"] = _ends(model)
    if dense := _mapping(stated.get("dense")):
        names = sorted({pattern(name) for name in dense})
        facts["left dense"] = ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
    return facts


def _calibration(stated: Mapping[str, Any]) -> str:
    made = _mapping(stated.get("calibration"))
    if not made:
        return "none was read, or it was not noted"
    return f"{made.get('text')}, {made.get('sequences')} × {made.get('length')} tokens, SHA-256 {made.get('sha256')}"


def _section(value: Any) -> str:
    """Without what is empty or off."""
    stated = {key: one for key, one in _mapping(value).items() if one not in (None, False, 0, [], {})}
    return ", ".join(f"{key} {one}" for key, one in stated.items()) or str(value)


def _ends(model: "CompressedFolder") -> str:
    """How tokens come in and logits go out."""
    tied = [layer for layer in model.layers if layer.tied]
    if tied:
        return f"{tied[0].name} in {tied[0].format}, once for {tied[0].tied} too"
    words = ("embed", "wte", "lm_head", "output")
    packed = [f"{one.name} in {one.format}" for one in model.layers if any(word in one.name for word in words)]
    kept = [
        f"{name.removesuffix('.weight')} kept in {one.type}"
        for name, one in model.kept.items()
        if len(one.shape) == 2 and any(word in name for word in words)
    ]
    return ", ".join([*packed, *kept]) or "not among the weights"


def _plain(row: Sequence[str]) -> list[str]:
    """What a file says, without what a terminal or rich would obey."""
    return [escape("".join(letter if letter.isprintable() else "�" for letter in cell)) for cell in row]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def show_dense(path: Path, model: "DenseModel", json: bool) -> None:
    if json:
        _record_dense(path, model).print_json()
        return
    quantised = model.quantised_by
    columns = ["tensors", "type", "compress", "count", "shape", "bytes"]
    print_table(
        f"{path}: {len(model.tensors)} tensors, {model.nbytes / 1e6:.1f} MB, not compressed by tilepress",
        columns,
        [_plain(_tensor_row(tensors, quantised)) for tensors in _tensor_kinds(model.tensors)],
        words=3,
    )
    rows = [[name, value] for name, value in model.facts.items()]
    if quantised:
        rows.append(["quantised by", f"{quantised}: `tilepress compress` takes its codes and scales where it can"])
    else:
        rows.append(["after `tilepress compress`", f"about {model.bytes_after / 1e6:.1f} MB with its defaults"])
    print_table("", ["", ""], map(_plain, rows), words=2)


def _record_dense(path: Path, model: "DenseModel") -> Recorder:
    recorder = Recorder(model=str(path))
    recorder.add("size", model.nbytes, "B")
    if model.quantised_by:
        recorder.add("quantised_by", model.quantised_by)
    else:
        recorder.add("size_after_compress", round(model.bytes_after), "B", "model")
    for name, value in model.facts.items():
        recorder.add("fact", value, subject=name)
    for tensor in model.tensors:
        recorder.add("type", tensor.type, tensor=tensor.name)
        recorder.add("shape", _shape(tensor), tensor=tensor.name)
        recorder.add("size", tensor.nbytes, "B", tensor=tensor.name)
        if not model.quantised_by:
            recorder.add("compress_would", tensor.fate, "", "model", tensor=tensor.name)
    return recorder


def _tensor_kinds(tensors: "Iterable[Tensor]") -> "Iterator[list[Tensor]]":
    kinds: dict[tuple[Any, ...], list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((pattern(tensor.name), tensor.type, tensor.shape), []).append(tensor)
    yield from kinds.values()


def _tensor_row(tensors: "Sequence[Tensor]", quantised: str | None) -> list[str]:
    first = tensors[0]
    fate = "as it comes" if quantised else first.fate
    size = sum(one.nbytes for one in tensors)
    return [pattern(first.name), first.type, fate, str(len(tensors)), _shape(first), str(size)]


def _shape(tensor: "Tensor") -> str:
    return "×".join(map(str, tensor.shape)) or "a number"
