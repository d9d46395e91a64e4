"""What a model was made from, as the hub's cards say it: `base_model` and the keys of its license."""

import re
from pathlib import Path
from typing import Any

import yaml

from .._bounded import UnreadableError, read_bounded_text
from .checksums import CARD, LONGEST
from .embedded import ModelUnavailableError
from .inspection.gguf_file import read_gguf
from .named import NAMED

KEYS = ("license", "license_name", "license_link")
REPOSITORY = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
_ADDRESS = "https://huggingface.co/"


def origin_of(name: str, folder: Path) -> dict[str, str]:
    """Of the model that was loaded as `name`, from `folder`; only what it says itself."""
    path = Path(name)
    if path.is_file():
        return _of_gguf(path)
    if path.is_dir():
        return _license(front_matter(folder))
    if name in NAMED:  # their wheels have the model without its card
        return dict(NAMED[name].origin)
    stated = {"base_model": name} if REPOSITORY.fullmatch(name) else {}
    return stated | _license(front_matter(folder))


def front_matter(folder: Path) -> dict[str, Any]:
    """The YAML at the head of a folder's model card; empty where there is none that can be read."""
    try:
        text = read_bounded_text(folder / CARD, LONGEST)
        match = re.match(r"---\n(.*?)\n---\n", text, re.S)
        value = yaml.safe_load(match[1]) if match else None
    except (OSError, UnreadableError, ValueError, yaml.YAMLError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _of_gguf(path: Path) -> dict[str, str]:
    try:
        facts = read_gguf(path).facts
    except ModelUnavailableError:  # whoever unpacks it says so
        return {}
    address = facts.get("base_model.0.repo_url", "")
    name = address.removeprefix(_ADDRESS)
    stated = {"base_model": name} if address.startswith(_ADDRESS) and REPOSITORY.fullmatch(name) else {}
    return stated | _license(facts)


def _license(stated: dict[str, Any]) -> dict[str, str]:
    return {key: stated[key] for key in KEYS if isinstance(stated.get(key), str) and stated[key].isprintable()}
