"""A whole model trained after compression, and the checkpoints from which that goes on."""

import pytest
import torch

from tests.models import tiny
from tests.models.test_compress_to_folder import Stop, contents, no_room
from tests.models.test_reconstruct import masks
from tilepress.models import compress as compressing
from tilepress.models import compress_folder, compress_model, compress_to_folder, heal, load_model
from tilepress.models.publish import OutputError
from tilepress.models.registration import packed_layers
from tilepress.models.storage import Progress

SHARD = 1000  # bytes: a file of its own for each block
WEIGHTS = {"format": "int8:row", "embedding": "keep", "density": 0.5, "prune": "wanda"}


@pytest.fixture
def seen(monkeypatch):
    """What `heal` gave."""
    results = []
    for module in (compressing, compress_to_folder):
        real = module.heal

        def spy(*arguments, real=real, **options):
            results.append(real(*arguments, **options))
            return results[-1]

        monkeypatch.setattr(module, "heal", spy)
    return results


@pytest.fixture
def healing(recipe):
    return recipe | {"weights": recipe["weights"] | {"heal": 6}}


def divergence(model, dense, tokens):
    with torch.no_grad():
        given, wanted = (one(tokens).logits.log_softmax(-1) for one in (model, dense))
    return float((wanted.exp() * (wanted - given)).sum(-1).mean())


@pytest.mark.parametrize(("family", "activations"), [("llama", "int8"), ("qwen2", "fp")])
def test_the_model_comes_nearer_to_the_dense_one(family, activations, seen):
    tokens, dense = tiny.windows(3, 32), tiny.make(family)
    chosen = {"weights": WEIGHTS, "activations": {"format": activations}}
    plain = compress_model(tiny.make(family), chosen, windows=tokens)
    model = compress_model(tiny.make(family), chosen | {"weights": WEIGHTS | {"heal": 30}}, windows=tokens)
    assert seen[0].before == pytest.approx(divergence(plain, dense, tokens), rel=1e-3)
    assert seen[0].after == pytest.approx(divergence(model, dense, tokens), rel=1e-3)
    assert seen[0].after < 0.9 * seen[0].before
    kept, healed = masks(plain), masks(model)
    assert all(torch.equal(mask, healed[name]) for name, mask in kept.items())
    assert {str(layer.matrix.format) for _, layer in packed_layers(model)} == {"int8:row"}
    assert {layer.activations for _, layer in packed_layers(model)} == {"float" if activations == "fp" else "int8"}
    assert torch.equal(model.model.embed_tokens.weight, dense.model.embed_tokens.weight)


def test_a_model_that_gets_no_better_stays_as_it_was(monkeypatch):
    monkeypatch.setattr(heal, "RATE", 1e3)
    tokens = tiny.windows(4)
    plain = compress_model(tiny.make("llama"), {"weights": WEIGHTS}, windows=tokens).state_dict()
    model = compress_model(tiny.make("llama"), {"weights": WEIGHTS | {"heal": 5}}, windows=tokens).state_dict()
    assert all(torch.equal(plain[name], model[name]) for name in plain)


def test_a_folder_is_healed_as_a_model_in_memory_is(llama_folder, tmp_path, healing):
    states = []
    compress_folder(str(llama_folder[0]), tmp_path / "out", healing, progress=states.append)
    windows = compress_to_folder.read_windows(
        compress_to_folder.read_recipe(healing), compress_to_folder.load_tokenizer(llama_folder[0])
    )
    expected = compress_model(tiny.make("llama"), healing, windows=windows).state_dict()
    loaded = load_model(str(tmp_path / "out")).model.state_dict()
    assert expected.keys() == loaded.keys() and all(torch.equal(expected[name], loaded[name]) for name in expected)
    assert [state.doing for state in states] == ["compressing"] * 5 + ["healing"] * 6
    assert states[-1] == Progress(6, 6, 0.0, "healing")


def test_interrupted_and_resumed_is_uninterrupted(llama_folder, tmp_path, healing, monkeypatch, seen):
    monkeypatch.setattr(heal, "PAUSE", 2)
    compress_folder(str(llama_folder[0]), tmp_path / "whole", healing)
    steps = []

    def stop(state):
        steps.append(state.done)
        if state.doing == "healing" and state.done == 3:
            raise Stop

    with pytest.raises(Stop):
        compress_folder(str(llama_folder[0]), tmp_path / "out", healing, progress=stop)
    assert (tmp_path / "out.partial/healing.safetensors").exists() and not (tmp_path / "out").exists()
    steps.clear()
    compress_folder(str(llama_folder[0]), tmp_path / "out", healing, progress=stop_never(steps))
    assert steps == [3, 4, 5, 6]  # on from the checkpoint after the second
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert seen[0] == seen[1] and not (tmp_path / "out.partial").exists()


def stop_never(steps):
    return lambda state: steps.append(state.done) if state.doing == "healing" else None


@pytest.mark.parametrize("written", [0, 1, 3])
def test_killed_while_the_healed_files_are_written(llama_folder, tmp_path, healing, monkeypatch, written):
    from tilepress.models.disk_storage import DiskStorage

    compress_folder(str(llama_folder[0]), tmp_path / "whole", healing, shard_bytes=SHARD)
    write, replace = DiskStorage._write, DiskStorage.replace
    files = []

    def fail(self, *arguments):
        if len(files) == written:
            no_room()
        files.append(1)
        write(self, *arguments)

    def replace_badly(self, state):
        with monkeypatch.context() as patch:
            patch.setattr(DiskStorage, "_write", fail)
            replace(self, state)

    with monkeypatch.context() as patch:
        patch.setattr(DiskStorage, "replace", replace_badly)
        with pytest.raises(OSError, match="No space left"):
            compress_folder(str(llama_folder[0]), tmp_path / "out", healing, shard_bytes=SHARD)
    compress_folder(str(llama_folder[0]), tmp_path / "out", healing, shard_bytes=SHARD)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_full_disc_while_a_checkpoint_is_written(llama_folder, tmp_path, healing, monkeypatch):
    from safetensors import SafetensorError

    def fail(*_):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    with monkeypatch.context() as patch:
        patch.setattr(heal, "save_file", fail)
        with pytest.raises(OutputError, match=r"healing.safetensors cannot be written: .*No space left.* make room"):
            compress_folder(str(llama_folder[0]), tmp_path / "out", healing)
    compress_folder(str(llama_folder[0]), tmp_path / "out", healing)
    assert (tmp_path / "out").is_dir()
