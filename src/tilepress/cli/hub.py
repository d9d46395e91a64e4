"""`tilepress push` and `tilepress pull`: compressed folders to the Hugging Face hub and back."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .output import Json, Recorder, print_table

if TYPE_CHECKING:
    from ..models.hub import Transfer

Repository = Annotated[str, typer.Argument(metavar="REPO", help="OWNER/NAME on the hub.")]


def push(
    folder: Annotated[Path, typer.Argument(help="A folder that `tilepress compress` wrote.")],
    repo: Repository,
    private: Annotated[bool, typer.Option("--private", help="Where it is created, for you alone.")] = False,
    revision: Annotated[
        str | None, typer.Option(help="A branch, created if it is not there; main if not given.")
    ] = None,
    json: Json = False,
) -> None:
    """Push a compressed folder to the Hugging Face hub, in one commit, after its checksums are checked.

    Only files that Tilepress wrote are sent, and no path of this machine. HF_TOKEN, or `hf auth login`, says who you
    are; HF_ENDPOINT names another hub.

    Example: tilepress push small me/small-int4 --private
    """
    from ..models.hub import push as send

    _hush(json)
    _show(send(folder, repo, private=private, revision=revision), "pushed", str(folder), json)


def pull(
    repo: Repository,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The folder to write; the repository's name if not given.")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="A branch, a tag or a commit; main if not given.")] = None,
    json: Json = False,
) -> None:
    """Pull a compressed folder from the Hugging Face hub, and check its checksums before it gets its name.

    Interrupted, the same command goes on from what has come. Only files that the repository's SHA256SUMS lists are
    fetched, with the card and records. HF_ENDPOINT names another hub.

    Example: tilepress pull me/small-int4 -o small
    """
    from ..models.hub import pull as fetch

    _hush(json)
    place = out or Path(repo.rpartition("/")[2])
    _show(fetch(repo, place, revision=revision), "pulled", str(place), json)


def _hush(quiet: bool) -> None:
    """The client's progress bars only where a terminal shows them."""
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if quiet or not sys.stderr.isatty():
        disable_progress_bars()


def _show(transfer: "Transfer", done: str, folder: str, json: bool) -> None:
    recorder = Recorder(model=folder, repository=transfer.repository)
    recorder.add("commit", transfer.commit)
    recorder.add("files", transfer.files)
    recorder.add("size", transfer.nbytes, "B")
    if json:
        recorder.print_json()
        return
    rows = [
        ["repository", transfer.repository],
        ["commit", transfer.commit],
        [f"files {done}", f"{transfer.files}, {transfer.nbytes / 1e6:.1f} MB, checksums hold"],
    ]
    print_table(folder, ["", ""], rows)
