"""A tokenizer of transformers in GGUF's keys: byte-level BPE, and BPE with bytes to fall back on (SentencePiece).

llama.cpp knows how to divide text into words by a name, not by the tokenizer's own pattern; a pattern without a name
here is written as "default", and that is said.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
# A part of the pattern by which tokenizers divide text → llama.cpp's name for it.
PATTERNS = {
    r"\p{N}{1,3}": "llama-bpe",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|": "qwen2",
    '"Digits"': "smollm",
    "'(?i:[sdmt]|ll|ve|re)": "gpt-4o",
}
IDS = {"bos": "add_bos_token_id", "eos": "add_eos_token_id", "unk": "add_unk_token_id", "pad": "add_pad_token_id"}


def add_tokenizer(writer: Any, folder: Path, vocabulary: int) -> list[str]:
    """Write the folder's tokenizer; returns what there is to say."""
    path = folder / "tokenizer.json"
    stated = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    model = stated.get("model", {})
    if model.get("type") != "BPE" or len(model["vocab"]) > vocabulary:
        writer.add_tokenizer_model("no_vocab")
        kind = model.get("type", "no tokenizer.json")
        return [f"the file is without a tokenizer ({kind}, and GGUF has BPE): give tokens, not text, to what reads it"]
    said = _add_bpe(writer, stated, vocabulary)
    _add_special(writer, folder, {token: id for token, id in model["vocab"].items()} | _added(stated))
    return said


def _add_bpe(writer: Any, stated: Mapping[str, Any], vocabulary: int) -> list[str]:
    model = stated["model"]
    tokens, types = _tokens(stated, vocabulary)
    sentencepiece = bool(model.get("byte_fallback"))
    said = []
    if sentencepiece:
        writer.add_tokenizer_model("llama")
        writer.add_token_scores([-float(id) for id in range(len(tokens))])
        writer.add_add_space_prefix("Prepend" in json.dumps(stated.get("normalizer")))
    else:
        name = _pattern(stated)
        said = [] if name else ["how its tokenizer divides text has no name in llama.cpp: written as default"]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(name or "default")
        writer.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in model["merges"]])
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    return said


def _tokens(stated: Mapping[str, Any], vocabulary: int) -> tuple[list[str], list[int]]:
    """Text and type of each token of the model, those without a text included."""
    tokens = [f"[PAD{id}]" for id in range(vocabulary)]
    types = [UNUSED] * vocabulary
    fallback = bool(stated["model"].get("byte_fallback"))
    for text, id in stated["model"]["vocab"].items():
        is_byte = fallback and len(text) == 6 and text.startswith("<0x")
        tokens[id], types[id] = text, BYTE if is_byte else NORMAL
    for added in stated.get("added_tokens", []):
        if added["id"] < vocabulary:
            tokens[added["id"]] = added["content"]
            types[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    unknown = stated["model"].get("unk_token")
    if fallback and unknown in stated["model"]["vocab"]:
        types[stated["model"]["vocab"][unknown]] = UNKNOWN
    return tokens, types


def _added(stated: Mapping[str, Any]) -> dict[str, int]:
    return {added["content"]: added["id"] for added in stated.get("added_tokens", [])}


def _pattern(stated: Mapping[str, Any]) -> str | None:
    text = json.dumps(stated.get("pre_tokenizer"), ensure_ascii=False).replace("\\\\", "\\")
    return next((name for part, name in PATTERNS.items() if part in text), None)


def _add_special(writer: Any, folder: Path, ids: Mapping[str, int]) -> None:
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    for kind, add in IDS.items():
        token = config.get(f"{kind}_token")
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str) and text in ids:
            getattr(writer, add)(ids[text])
    if "add_bos_token" in config:
        writer.add_add_bos_token(bool(config["add_bos_token"]))
    template = folder / "chat_template.jinja"
    chat = template.read_text("utf-8") if template.is_file() else config.get("chat_template")
    if isinstance(chat, str):
        writer.add_chat_template(chat)
