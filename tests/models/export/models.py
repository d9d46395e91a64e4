"""Tiny compressed models to export."""

from tests.models import tiny
from tilepress.models import compress_folder


def compressed(folder, weights=None, activations="fp", **changes):
    """The folder of a tiny Llama, compressed; its source lies beside."""
    source, _ = tiny.save(folder / "dense", **changes)
    recipe = {"weights": {"embedding": "keep", **(weights or {})}, "activations": {"format": activations}}
    compress_folder(str(source), folder / "small", recipe, announce=lambda _: None)
    return folder / "small"


def give_byte_level_tokenizer(small):
    """Put that tokenizer into a compressed folder, whose list of checksums then is without it."""
    byte_level_tokenizer().save_pretrained(small)
    sums = small / "SHA256SUMS"
    kept = [line for line in sums.read_text().splitlines() if "tokenizer" not in line]
    sums.write_text("\n".join(kept) + "\n")


def byte_level_tokenizer(vocabulary=tiny.VOCABULARY):
    """BPE over bytes, as GGUF has it, of at most so many tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())[: vocabulary - 6]
    tokens = ["<|bos|>", "<|eos|>", *letters, "ab", "abc"]
    model = models.BPE({token: id for id, token in enumerate(tokens)}, [("a", "b"), ("ab", "c")])
    plain = Tokenizer(model)
    plain.pre_tokenizer, plain.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="<|bos|>", eos_token="<|eos|>")
