"""README.md of a compressed model's folder: what was done to which model, how large it is, and how to load it."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from .blocks import pattern
from .checksums import sealed_card
from .recipe import Recipe, to_toml
from .registration import TilepressConfig
from .share import millions

MOST_ROWS = 20


def model_card(config: TilepressConfig, kind: str, sizes: tuple[int, int] | None = None) -> str:
    """`kind`: the model's class. `sizes`: bytes of weights before and after."""
    source = Path(config.source).name if config.source else "A model"  # no path of this machine
    made = f"{source}, compressed by [Tilepress](https://pypi.org/project/tilepress/) {config.versions['tilepress']}."
    parts = [
        f"---\n{_front_matter(config, kind)}---",
        f"# {source}, compressed",
        " ".join([made, *_base(config.origin)]),
        "\n".join(_facts(config, sizes)),
        f"## To load it\n\n```python\n{LOADING.format(kind=kind)}```",
        f"## What was done\n\n```toml\n{to_toml(_recipe(config))}```",
        *_tables(config),
    ]
    return sealed_card("\n\n".join(parts) + "\n\n")


def _front_matter(config: TilepressConfig, kind: str) -> str:
    """What the hub reads: YAML."""
    stated: dict[str, Any] = {"library_name": "transformers", "tags": ["tilepress", "cpu"], **config.origin}
    if "base_model" in stated:
        stated["base_model_relation"] = "quantized"
    if kind.endswith("ForCausalLM"):
        stated["pipeline_tag"] = "text-generation"
    text: str = yaml.safe_dump(stated, allow_unicode=True)
    return text


def _base(origin: Mapping[str, str]) -> list[str]:
    """What it was made from, and under which license that came; nothing where the source does not say."""
    base, named = origin.get("base_model"), origin.get("license_name") or origin.get("license")
    license = f"`{named.replace('`', '')}`" if named else None
    if base:
        terms = f"its license is {license}" if license else "it was not found under which license"
        return [f"The base model is [{base}](https://huggingface.co/{base}); {terms}."]
    return [f"What it was made from has the license {license}."] if license else []


LOADING = """\
import tilepress  # teaches transformers to load it
from transformers import AutoTokenizer, {kind}

model = {kind}.from_pretrained("the folder")
tokenizer = AutoTokenizer.from_pretrained("the folder")
"""


def _recipe(config: TilepressConfig) -> Recipe:
    """Without the folder of the calibration text, which is of this machine."""
    recipe = Recipe.model_validate(config.recipe)
    text = recipe.calibration.text
    if text is None:
        return recipe
    return recipe.model_copy(update={"calibration": recipe.calibration.model_copy(update={"text": Path(text).name})})


def _facts(config: TilepressConfig, sizes: tuple[int, int] | None) -> list[str]:
    facts, counts = [], config.parameters
    if counts is not None:
        packed, kept = counts["packed"], counts["kept"]
        facts.append(f"- {millions(packed)} of {millions(packed + kept)} parameters are packed")
        facts.append(f"- {millions(kept)} stay as they were, {millions(counts['embeddings'])} of them embeddings")
    if sizes is not None:
        before, after = sizes
        facts.append(f"- {after / 1e6:.1f} MB of weights, {before / 1e6:.1f} MB before: {before / after:.2f} × smaller")
    formats = Counter(layer["format"] for layer in config.layers.values())
    facts += [f"- {count} layers in {format}" for format, count in formats.items()]
    return facts


def _tables(config: TilepressConfig) -> list[str]:
    kept = Counter((pattern(name), why) for name, why in config.dense.items())
    blind = Counter(pattern(name) for name in config.uncalibrated)
    return [
        *_table("Layers that stay as they were", "why", {name: why for name, why in kept}),
        *_table("Layers that too few tokens reached, rounded without statistics", "how many", blind),
    ]


def _table(title: str, column: str, rows: dict[str, str] | Counter[str]) -> list[str]:
    if not rows:
        return []
    shown = [f"| {name} | {value} |" for name, value in list(rows.items())[:MOST_ROWS]]
    more = [f"| … {len(rows) - MOST_ROWS} more | |"] if len(rows) > MOST_ROWS else []
    return [f"## {title}\n\n" + "\n".join([f"| layer | {column} |", "|---|---|", *shown, *more])]
