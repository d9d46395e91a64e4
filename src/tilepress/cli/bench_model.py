"""What `tilepress bench model` measures, records and prints."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .output import Recorder, hush_transformers, print_table, progress, write_card

if TYPE_CHECKING:
    import torch

    from ..bench.model import Entrant, Rate, Result, Settings, Speed
    from ..models.checkpoint_checks import Allowed
    from ..records import Label


def compare(
    models: Sequence[str],
    settings: "Settings",
    dtype: "torch.dtype | None",
    base: str | None,
    with_peers: bool,
    json: bool,
    kv: Sequence[str],
    allowed: "Allowed",
    on_card: bool = False,
) -> None:
    """`models`, by name, each with every cache of `kv`, and the peers that run `base` if `with_peers`: records for
    machines or a table for people; `on_card`: also in the first model's folder."""
    from ..models.kept_records import check_keeps_records

    folder = check_keeps_records(models[0]) if on_card else None
    hush_transformers()
    entrants, refused = _entrants(models, settings, dtype, base, with_peers, kv, allowed)
    result = measured(entrants, settings, models[0], json, allowed)
    recorder = Recorder()
    record(recorder, result)
    for name, reason in {**refused, **result.refused}.items():
        recorder.add("peer_refused", reason, peer=name)
        if not json:
            print(f"no peer here: {name}: {reason}")
    if folder is not None:
        write_card(folder, [one for one in recorder.records if one.labels.get("model") in (None, models[0])])
    if json:
        recorder.print_json()
    else:
        _print(result, settings)


def _entrants(
    models: Sequence[str],
    settings: "Settings",
    dtype: "torch.dtype | None",
    base: str | None,
    with_peers: bool,
    kv: Sequence[str],
    allowed: "Allowed",
) -> "tuple[list[Entrant], dict[str, str]]":
    from ..bench.model_peers import base_of, best_dtype, entrant, peers
    from ..models import model_folder

    ours = [entrant(name, settings, dtype, cache, allowed) for name in models for cache in kv or (None,)]
    if not with_peers:
        return ours, {}
    if base is not None:
        model_folder(base)  # what the user names must be there; what a folder names may be gone
    base = base or base_of(models)
    is_entered = base in models and dtype in (None, best_dtype()) and not kv
    theirs, refused = peers(base, is_entered=is_entered, caches=bool(kv), allowed=allowed)
    return [*ours, *theirs], refused


def measured(
    entrants: "Sequence[Entrant]", settings: "Settings", model: str, quiet: bool, allowed: "Allowed"
) -> "Result":
    """The race with a progress bar; tokens of prompts are of the vocabulary of `model`."""
    from ..bench.model import measure, steps
    from ..bench.model_peers import vocabulary

    with progress(quiet) as bar:
        task = bar.add_task("read bandwidth", total=steps(entrants, settings))

        def step(text: str) -> None:
            bar.update(task, advance=1, description=text)

        return measure(entrants, settings, vocabulary(model, allowed), step)


def record(recorder: Recorder, result: "Result") -> None:
    recorder.add("read_bandwidth", result.bandwidth / 1e9, "GB/s")
    for speed in result.speeds:
        depth, batch = speed.point.depth, speed.point.batch
        prefill: dict[str, Label] = {**speed.labels, "prompt": depth, "batch": batch}
        decode: dict[str, Label] = {**speed.labels, "depth": depth, "batch": batch}
        for metric, rate, labels in (("prefill", speed.prefill, prefill), ("decode", speed.decode, decode)):
            recorder.add(metric, rate.mean, "token/s", **labels)
            recorder.add(metric, rate.sigma, "token/s", **labels, statistic="standard_deviation")
        recorder.add("bytes_read", speed.bytes_read, "B", **decode)
        recorder.add("share_of_read_bandwidth", speed.share_of_bandwidth, **decode)
        for peer, (faster_prefill, faster_decode) in result.over(speed).items() if not speed.is_peer else ():
            recorder.add("prefill_speedup", faster_prefill, "x", **prefill, peer=peer)
            recorder.add("decode_speedup", faster_decode, "x", **decode, peer=peer)


def _print(result: "Result", settings: "Settings") -> None:
    against = next((speed.name for speed in result.speeds if speed.is_peer), None)
    columns = ["model", "batch", "depth", "prefill, tokens/s", "decode, tokens/s", "MB a step", "% of read"]
    columns += [f"× {against}, decode"] if against else []
    title = f"{settings.tokens} tokens after each prompt, mean ± standard deviation of {settings.repeats}"
    print_table(title, columns, [_row(result, speed, against) for speed in result.speeds])
    print(f"read bandwidth, GB/s: {result.bandwidth / 1e9:.1f}")


def _row(result: "Result", speed: "Speed", against: str | None) -> list[str]:
    rates = [rate_text(speed.prefill), rate_text(speed.decode)]
    share = [f"{speed.bytes_read / 1e6:.1f}", f"{100 * speed.share_of_bandwidth:.1f}"]
    ratio = [f"{result.over(speed)[against][1]:.2f}"] if against else []
    return [speed.name, str(speed.point.batch), str(speed.point.depth), *rates, *share, *ratio]


def rate_text(rate: "Rate") -> str:
    return f"{rate.mean:.1f}" if rate.sigma != rate.sigma else f"{rate.mean:.1f} ± {rate.sigma:.1f}"


def depths(texts: Sequence[str] | None) -> list[int]:
    """Numbers of tokens, each text one or several with commas."""
    numbers = [text.strip() for given in texts or () for text in given.split(",")]
    for text in numbers:
        if not (text.isascii() and text.isdigit() and int(text)):
            raise ValueError(f"a depth is a number of tokens, 4096 say, or several with commas; not {text!r}")
    return [int(text) for text in numbers]
