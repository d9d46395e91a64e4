"""The first screen: what was compressed, what it cost, what it gained, where it ran, what bounds it."""

import re
from collections.abc import Sequence

from ..records import Labels, Record, Reproduction, Value, tally
from .blocks import Card, Cards, Section, Sources, build, number, text, unit_text
from .catalogue import COMPRESSED, DEMO, LARGE, LINEAR, MODELS, QUALITY
from .families import Figure, read

AGAINST = re.compile(r"--against[ =](\S+)")  # the model that a compressed one was judged beside


def summary_section(records: Sequence[Record]) -> Section | None:
    if not records:
        return None
    cards = [
        *_demonstrated(records),
        *_quality(records),
        *_gain(records),
        *_bound(records),
        *_papers(records),
        _origins(records),
    ]
    about = "Each figure is one of the records; the sections below say where it comes from."
    return Section("summary", "Summary", about, [Cards("Summary", cards, Sources.of(records))])


def _demonstrated(records: Sequence[Record]) -> list[Card]:
    """Of a demonstration: the variant that it puts first: what it lost, how small and how fast it became."""
    of_it: dict[str, dict[str, Value]] = {}
    for one in [one for one in read(DEMO, records) if not one.is_error]:
        of_it.setdefault(one.words["model"], {})[one.metric] = one.record.value
    ours = [name for name, values in of_it.items() if "kl_divergence" in values]
    judged = {name: values for name, values in of_it.items() if {"decode", "perplexity", "size"} <= {*values}}
    others = [name for name in judged if name not in ours]
    if not ours or ours[0] not in judged or not others:
        return []
    name, came = ours[0], others[0]
    best, before = judged[name], judged[came]
    loss = (number(best["perplexity"]) or 0.0) / (number(before["perplexity"]) or 1.0)
    size, was = (f"{(number(values['size']) or 0.0) / 1e6:.1f} MB" for values in (best, before))
    rivals = [f"{other} {text(values['decode'])}" for other, values in of_it.items() if other not in ours]
    return [
        Card(
            "Perplexity",
            f"{loss:.3f} ×",
            f"{name}; {text(best['perplexity'])}, {came} {text(before['perplexity'])}",
        ),
        Card("Size", size, f"{name}; {was} before, {came}"),
        Card("Decoding", f"{text(best['decode'])} token/s", f"{name}; {', '.join(rivals)}"),
    ]


def _quality(records: Sequence[Record]) -> list[Card]:
    """Of the compressed models that were judged, the one nearest to what it came from."""
    figures = [one for one in read(QUALITY, records) if "statistic" not in one.record.labels]
    near = [one for one in figures if one.metric == "kl_divergence" and number(one.record.value) is not None]
    if not near:
        return []
    best = min(near, key=lambda one: number(one.record.value) or 0.0)
    of_it = {one.metric: one.record.value for one in figures if one.words == best.words}
    model = best.words["model"]
    against = AGAINST.search(best.record.command)
    beside = f" beside {against[1]}" if against else ""
    detail = f"{model}{beside} on {best.words['on']}, the nearest of {len(near)} judged"
    if "perplexity" in of_it and "reference_perplexity" in of_it:
        detail += f"; perplexity {text(of_it['perplexity'])}, {text(of_it['reference_perplexity'])} before"
    return [Card("Quality held", f"{text(best.record.value)} nat KL", detail), *_size(model, records)]


def _size(model: str, records: Sequence[Record]) -> list[Card]:
    sizes = {one.metric: number(one.record.value) for one in read(COMPRESSED, records) if one.words["model"] == model}
    before, after = sizes.get("source_size"), sizes.get("size")
    return [Card("Size", f"{after / 1e6:.0f} MB", f"{model}, from {before / 1e6:.0f} MB")] if before and after else []


def _gain(records: Sequence[Record]) -> list[Card]:
    """The fastest of ours in decoding on each machine, beside the slowest and the fastest peer."""
    cards = []
    figures = [one for one in [*read(MODELS, records), *read(LARGE, records)] if not one.is_error]
    ratios = [one for one in figures if one.metric == "decode_speedup" and number(one.record.value) is not None]
    for machine, command in dict.fromkeys((one.record.machine, one.record.command) for one in ratios):
        ours = {str(one.words) for one in ratios if (one.record.machine, one.record.command) == (machine, command)}
        rates = [one for one in figures if one.metric == "decode" and _is_of(one, machine, command)]
        mine = [one for one in rates if str(one.words) in ours and number(one.record.value) is not None]
        if mine:
            best = max(mine, key=lambda one: number(one.record.value) or 0.0)
            beside = [one for one in ratios if one.words == best.words and _is_of(one, machine, command)]
            figure = f"{text(best.record.value)} {unit_text(best.record.unit)}"
            who = ", ".join(best.words[word] for word in ("model", "weights") if word in best.words)
            cards.append(Card("Decoding", figure, f"{who}: {_peers(beside)}; {machine}"))
    return cards


def _is_of(one: Figure, machine: str, command: str) -> bool:
    return (one.record.machine, one.record.command) == (machine, command)


def _peers(ratios: Sequence[Figure]) -> str:
    ordered = sorted(ratios, key=lambda one: number(one.record.value) or 0.0)
    ends = {one.label("peer"): one.record.value for one in (ordered[-1], ordered[0])}
    return ", ".join(f"{_ratio(value)} × {peer}" for peer, value in ends.items())


def _ratio(value: Value) -> str:
    return f"{number(value) or 0.0:.3g}"


def _bound(records: Sequence[Record]) -> list[Card]:
    """On each machine the layer that comes nearest to the read bandwidth."""
    cards = []
    layers = read(LINEAR, records)
    reads = {(one.machine, one.command, one.labels): one.value for one in records if one.metric == "read_bandwidth"}
    ours = {one.words["weights"] for one in layers if one.metric == "speedup"}
    shares = [one for one in layers if one.metric == "share_of_read_bandwidth" and number(one.record.value) is not None]
    for machine in dict.fromkeys(one.record.machine for one in shares if one.words["weights"] in ours):
        here = [one for one in shares if one.record.machine == machine and one.words["weights"] in ours]
        best = max(here, key=lambda one: number(one.record.value) or 0.0)
        words, figure = best.words, f"{100 * (number(best.record.value) or 0.0):.0f} %"
        where = Labels({name: best.record.labels[name] for name in ("shape", "batch")})
        read_at = reads.get((machine, best.record.command, where))
        limit = f"; {text(read_at)} GB/s were read beside it" if read_at is not None else ""
        layer = f"{words['weights']}, {words['shape'].replace('x', '×')}, batch {words['batch']}"
        same = [one for one in layers if one.words == words and _is_of(one, machine, best.record.command)]
        binds = [f"; by the model, {one.record.value} binds" for one in same if one.metric == "predicted_bound"]
        cards.append(Card("Of the read bandwidth", figure, f"{layer}{limit}{''.join(binds[:1])}; {machine}"))
    return cards


def _papers(records: Sequence[Record]) -> list[Card]:
    """Predictions alone; what was fitted, chosen, derived or one-sided stands apart, in a card of its own."""
    of_kind = tally(one for one in records if isinstance(one, Reproduction))
    held_out, others = of_kind.pop("held-out"), of_kind
    if not (held_out.compared or others):
        return []
    impossible = held_out.impossible + sum(one.impossible for one in others.values())
    detail = f"{impossible} more cells are not possible here" if impossible else "nothing was fitted to them"
    cards = [Card("Held-out values of the papers that match", f"{held_out.matches} of {held_out.compared}", detail)]
    compared = [one for one in others.values() if one.compared]
    if compared:
        figure = f"{sum(one.matches for one in compared)} of {sum(one.compared for one in compared)}"
        detail = ", ".join(f"{kind} {one}" for kind, one in others.items() if one.compared)
        cards.append(Card("Other values that match, no predictions", figure, detail))
    return cards


def _origins(records: Sequence[Record]) -> Card:
    count = {origin: sum(one.origin == origin for one in records) for origin in Sources.of(records).origins}
    machines = len(Sources.of(records).machines)
    detail = ", ".join(f"{number} {_origin(origin)}" for origin, number in count.items())
    older = sum(bool(build(one)) for one in records)
    detail += f"; {older} of older builds" if older else ""
    return Card("Records", str(len(records)), f"{detail}; {machines} {'machine' if machines == 1 else 'machines'}")


def _origin(origin: str) -> str:
    return {"model": "by a model", "paper": "of papers"}.get(origin, origin)
