"""What `tilepress bench threads` measures, records and prints."""

from typing import TYPE_CHECKING

from .bench_model import rate_text
from .output import Recorder, hush_transformers, metric_text, print_table, progress

if TYPE_CHECKING:
    from ..bench.company import Accompanied
    from ..bench.model import Entrant, Settings

BESIDE = ("transformers", "llama.cpp")  # the peers that have threads of their own


def alternate(rounds: int, threads: int | None, json: bool) -> None:
    """A torch layer and one of ours in turn, against each alone."""
    from ..bench.alternating import ALTERNATING, measure_alternating, slowdown

    recorder = Recorder()
    seconds = measure_alternating(rounds, threads)
    for loop, time in seconds.items():
        recorder.add("time", time * 1e6, "us", loop=loop)
    recorder.add("slowdown", slowdown(seconds), "x", loop=ALTERNATING)
    if json:
        recorder.print_json()
    else:
        rows = [[metric_text(record), f"{record.value:.2f}", record.unit] for record in recorder.records]
        print_table("a torch layer and one of ours, 4096×4096", ["what", "value", "unit"], rows)


def accompany(model: str | None, company: int, settings: "Settings", json: bool) -> None:
    """A compressed model and its peers beside `company` busy processes, against each without them."""
    from ..bench.company import measure_accompanied
    from ..bench.model import steps
    from ..bench.model_peers import vocabulary

    if model is None:
        raise ValueError("--company times a whole model: name the folder of a compressed one with --model")
    hush_transformers()
    entrants, refused = _entrants(model, settings)
    with progress(json) as bar:
        task = bar.add_task("", total=2 * steps(entrants, settings))
        pairs, result = measure_accompanied(
            entrants, company, settings, vocabulary(model), lambda text: bar.update(task, advance=1, description=text)
        )
    recorder = Recorder()
    for pair in pairs:
        _record(recorder, pair, company)
    for name, reason in {**refused, **result.refused}.items():
        recorder.add("peer_refused", reason, peer=name)
        if not json:
            print(f"no peer here: {name}: {reason}")
    recorder.print_json() if json else _print(pairs, company)


def _entrants(model: str, settings: "Settings") -> "tuple[list[Entrant], dict[str, str]]":
    from ..bench.model_peers import base_of, entrant, peers

    ours = entrant(model, settings, None)
    theirs, refused = peers(base_of([model]), is_entered=ours.is_peer)
    beside = [one for one in theirs if one.name.startswith(BESIDE)]
    return [ours, *beside], {name: reason for name, reason in refused.items() if name.startswith(BESIDE)}


def _record(recorder: Recorder, pair: "Accompanied", company: int) -> None:
    labels = pair.idle.labels
    for count, speed in ((0, pair.idle), (company, pair.beside)):
        recorder.add("prefill", speed.prefill.mean, "token/s", **labels, company=count)
        recorder.add("decode", speed.decode.mean, "token/s", **labels, company=count)
    recorder.add("prefill_share_of_idle", pair.prefill_share, **labels, company=company)
    recorder.add("decode_share_of_idle", pair.decode_share, **labels, company=company)


def _print(pairs: "list[Accompanied]", company: int) -> None:
    columns = ["model", "prefill, tokens/s", "beside", "% of idle", "decode, tokens/s", "beside", "% of idle"]
    print_table(f"beside {company} busy processes", columns, [_row(pair) for pair in pairs])


def _row(pair: "Accompanied") -> list[str]:
    prefill = [rate_text(pair.idle.prefill), rate_text(pair.beside.prefill), f"{100 * pair.prefill_share:.0f}"]
    decode = [rate_text(pair.idle.decode), rate_text(pair.beside.decode), f"{100 * pair.decode_share:.0f}"]
    return [pair.idle.name, *prefill, *decode]
