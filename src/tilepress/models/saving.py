"""`save_pretrained` of a compressed model: as transformers does it, but to a place beside, with checksums."""

import os
from pathlib import Path
from typing import Any

from .._files import apply_umask, sync, workspace, write_text
from .._safetensors import INDEX, DamagedError, is_whole_model
from .checksums import CARD, can_be_listed, digests_of, is_own_card, read_sums, write_sums


class Saving:
    """A model's own `save_pretrained`. A save that is killed leaves nothing that a later one does not remove, and a
    folder that was half overwritten contradicts its SHA256SUMS, so it is not loaded."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __deepcopy__(self, memo: dict[int, Any]) -> "Saving":
        return Saving(memo.get(id(self.model), self.model))

    def __call__(self, save_directory: str | os.PathLike[str], *arguments: Any, **options: Any) -> None:
        folder, save = Path(save_directory), type(self.model).save_pretrained
        if folder.is_file():
            save(self.model, folder, *arguments, **options)  # says so, and writes nothing
            return
        folder.mkdir(parents=True, exist_ok=True)
        with workspace(folder / "model") as beside:
            made = beside / folder.resolve().name  # the name it has on the hub, if it goes there
            save(self.model, made, *arguments, **options)
            if not (folder / CARD).exists() or is_own_card(folder / CARD):
                write_text(made / CARD, self._card())
            apply_umask(made)
            move_in(made, folder)

    def _card(self) -> str:
        from .card import model_card  # which imports registration, as that imports this

        return model_card(self.model.config.quantization_config, type(self.model).__name__)


def move_in(made: Path, folder: Path) -> None:
    """The files in `made` take their places in `folder`; of a model that was there, what they do not replace goes."""
    names = {path.name for path in made.iterdir()}
    listed, stale = _listed(folder), _stale(folder, names)
    files = (name for name in names - {CARD} if (made / name).is_file() and can_be_listed(name))
    listed |= digests_of(made, files)
    for name in names:
        sync(made / name)
        os.replace(made / name, folder / name)
    for name in stale:
        os.unlink(folder / name)
    sync(folder)
    if names:
        write_sums(folder, {name: digest for name, digest in listed.items() if (folder / name).exists()})


def _listed(folder: Path) -> dict[str, str]:
    try:
        return read_sums(folder)
    except DamagedError:  # a new list takes its place
        return {}


def _stale(folder: Path, names: set[str]) -> set[str]:
    """Weights that are not loaded any more once those in `names` are there. An adapter or a variant replaces none."""
    if not any(map(is_whole_model, names)):
        return set()
    return {path.name for path in folder.iterdir() if is_whole_model(path.name) or path.name == INDEX} - names
