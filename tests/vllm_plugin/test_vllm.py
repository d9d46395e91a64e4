"""Compressed folders in vLLM give what they give in transformers. `make vllm` sets up a vLLM and runs these."""

import gc
import json
from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from tests.models import tiny
from tilepress.models import compress_model

pytestmark = [
    pytest.mark.skipif(find_spec("vllm") is None, reason="vllm is not installed: make vllm"),
    pytest.mark.filterwarnings("ignore"),  # vLLM's own
]
PROMPTS = [[1, 5, 9, 13, 40, 7], [1, 90, 8]]
TOKENS = 8
SIZES = {**tiny.GATED, "num_attention_heads": 2, "num_key_value_heads": 1}  # vLLM's attention has no narrower heads
UNTIED = {"tie_word_embeddings": False}
WHOLE = {"weights": {"format": "int4:g32", "embedding": "int8:row"}}
ALONE = {"weights": {"format": "int8:row", "density": 0.5, "embedding": "int4:g32", "lm_head": "compress"}}
CASES = {
    "tied": ("llama", {}, WHOLE),
    "output of its own": ("llama", UNTIED, ALONE),
    "dense table": ("llama", {}, {"weights": {"format": "mxfp4", "embedding": "keep"}}),
    "dense table and output": ("llama", UNTIED, {"weights": {"format": "uint4:g32", "embedding": "keep"}}),
    "mistral": ("mistral", {"sliding_window": 8}, WHOLE),
    "qwen2": ("qwen2", {}, WHOLE),  # has biases
    "qwen3": ("qwen3", {"head_dim": 32}, WHOLE),
    "gemma3": ("gemma3_text", {"head_dim": 32, "sliding_window": 8}, WHOLE),  # multiplies rows of the table
}
INTEGERS = {"weights": {"format": "int4:g32"}, "activations": {"format": "int8"}}


@pytest.fixture(scope="module", autouse=True)
def _one_process(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        patch.setenv("VLLM_CACHE_ROOT", str(tmp_path_factory.mktemp("vllm")))
        yield


@pytest.fixture
def folder(request, tmp_path):
    return write(tmp_path / "model", *CASES[request.param])


def write(folder, family, changes, recipe, seed=0):
    torch.manual_seed(seed)
    config = AutoConfig.for_model(family, **{**SIZES, "tie_word_embeddings": True, **changes})
    model = compress_model(AutoModelForCausalLM.from_config(config).eval(), recipe, windows=tiny.windows())
    model.save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


def served(folder, **options):
    """Of each prompt: what vLLM writes, and the logarithms of the probabilities of all tokens before each of those,
    [tokens, vocabulary]."""
    from vllm import LLM, SamplingParams
    from vllm.distributed import cleanup_dist_env_and_memory

    plain = {"dtype": "float32", "enforce_eager": True, "max_model_len": 64, "max_num_seqs": 4}
    llm = LLM(str(folder), max_logprobs=tiny.VOCABULARY, **{**plain, **options})
    asked = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, logprobs=tiny.VOCABULARY)
    try:
        outputs = [done.outputs[0] for done in llm.generate([{"prompt_token_ids": one} for one in PROMPTS], asked)]
        return [(list(one.token_ids), torch.stack([probabilities(each) for each in one.logprobs])) for one in outputs]
    finally:
        del llm
        gc.collect()
        cleanup_dist_env_and_memory()


def probabilities(step):
    return torch.tensor([step[token].logprob for token in range(tiny.VOCABULARY)])


def assert_serves(folder, nearness, **options):
    """vLLM's texts are those that are likeliest in transformers, and all tokens are as likely there."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for prompt, (tokens, given) in zip(PROMPTS, served(folder, **options), strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(-1)
        assert expected.std() > 0.5  # of a model that does not say the same of every token
        torch.testing.assert_close(given, expected, rtol=0, atol=nearness)
        likeliest = expected.max(-1).values
        assert bool((expected.gather(-1, torch.tensor([tokens]).T)[:, 0] >= likeliest - 2 * nearness).all())


@pytest.mark.slow
@pytest.mark.parametrize("folder", CASES, indirect=True)
def test_vllm_gives_what_transformers_gives(folder):
    assert_serves(folder, 2e-3)


@pytest.mark.slow
def test_activations_are_rounded_as_the_recipe_says(tmp_path):
    """To 8 bits that both round alike; a rounding that goes the other way changes a logit by more than float32 does."""
    assert_serves(write(tmp_path / "model", "llama", {}, INTEGERS), 0.1)


@pytest.mark.slow
def test_compiled_graphs_are_of_no_model_in_particular(tmp_path):
    """The second model may take up the graph that vLLM has kept of the first, which has its shapes."""
    for seed in (0, 1):
        folder = write(tmp_path / str(seed) / "model", "llama", {}, WHOLE, seed)
        assert_serves(folder, 2e-3, enforce_eager=False)


@pytest.mark.slow
def test_a_damaged_folder_is_refused(tmp_path):
    folder = write(tmp_path / "model", "llama", {}, WHOLE)
    arrays = load_file(folder / "model.safetensors")
    arrays["model.layers.1.mlp.up_proj.codes"][3] ^= 1
    save_file(arrays, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(Exception, match=r"model\.layers\.1\.mlp\.up_proj\.codes is damaged"):
        served(folder)


@pytest.mark.slow
def test_a_cache_of_ours_is_refused(tmp_path):
    recipe = {**WHOLE, "kv_cache": {"format": "bfp8"}}
    with pytest.raises(Exception, match="stores keys and values as bfp8, and vLLM stores them its own way"):
        served(write(tmp_path / "model", "llama", {}, recipe))


@pytest.mark.slow
def test_another_version_is_refused(tmp_path):
    folder = write(tmp_path / "model", "llama", {}, WHOLE)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["version"] = 1
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(Exception, match="written in version 1 of tilepress' folders"):
        served(folder)
