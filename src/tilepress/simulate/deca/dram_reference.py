"""DRAM command by command, in plain Python: the specification of `dram`.

All commands are kept, and each new one goes to the earliest time that breaks no rule with any of them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .dram import Timing


@dataclass(frozen=True)
class Command:
    time: int
    group: int


@dataclass
class Bank:
    """`row` that was opened last, at `activated`; `read`: its latest read."""

    row: int
    activated: int
    read: int


@dataclass
class Channel:
    banks: dict[int, Bank] = field(default_factory=dict)
    reads: list[Command] = field(default_factory=list)
    activates: list[Command] = field(default_factory=list)
    hits: int = 0
    closed: int = 0
    conflicts: int = 0


class Reference:
    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.channels = [Channel() for _ in range(timing.channels)]
        self.mesh_free = 0

    def serve(self, now: int, line: int) -> int:
        """The unit of time in which a line asked for at `now` has arrived; calls come in order of `now`."""
        t = self.timing
        start = max(now, self.mesh_free)
        self.mesh_free = start + t.mesh
        return t.path + max(self._burst(start, line) for _ in range(t.bursts))

    def locate(self, line: int) -> tuple[int, int, int]:
        """Channel, bank and row: bits of an address, of which each of channel and bank is XORed with those above it."""
        t = self.timing
        bits = [line >> bit & 1 for bit in range(64)]
        place, above = _split(bits, t.interleave)
        channel_bits = _split(above, t.channels)[0]
        lowest, rest = _split(place + above[len(channel_bits) :], 2)
        other_bits, row_bits = _split(_split(rest, t.row)[1], t.bank_groups * t.banks // 2)
        bank_bits = lowest + other_bits
        channel = _xored(above, len(channel_bits))
        return _number(channel), _number(bank_bits) ^ _number(_xored(row_bits, len(bank_bits))), _number(row_bits)

    def _burst(self, now: int, line: int) -> int:
        """When its data are there."""
        t = self.timing
        number, bank, row = self.locate(line)
        channel = self.channels[number]
        start = self._queued(channel, now)
        read = self._hit(channel, number, bank, row, start)
        if read is None:
            read = self._open_and_read(channel, number, bank, row, start)
        channel.reads.append(Command(read, self._group(bank)))
        channel.banks[bank].read = max(channel.banks[bank].read, read)
        return read + t.cl + t.data

    def _queued(self, channel: Channel, now: int) -> int:
        """When fewer than `queue` reads of the channel wait for their data."""
        ends = sorted(one.time + self.timing.cl + self.timing.data for one in channel.reads)
        return now if len(ends) < self.timing.queue else max(now, ends[-self.timing.queue])

    def _hit(self, channel: Channel, number: int, bank: int, row: int, start: int) -> int | None:
        """When it is read, if its row is open until then."""
        opened = channel.banks.get(bank)
        if opened is None or opened.row != row:
            return None
        read = self._read_time(channel, number, bank, max(start, opened.activated + self.timing.rcd))
        if self._is_refreshed(number, bank, opened.activated, read):
            return None
        channel.hits += 1
        return read

    def _open_and_read(self, channel: Channel, number: int, bank: int, row: int, start: int) -> int:
        ready = self._closed(channel, number, bank, start)
        while True:
            activate = self._activate_time(channel, number, bank, ready)
            read = self._read_time(channel, number, bank, activate + self.timing.rcd)
            if not self._is_refreshed(number, bank, activate, read):
                break
            ready = next(begin for begin in self._refreshes(number, bank, activate, read) if begin > activate)
        channel.activates.append(Command(activate, self._group(bank)))
        channel.banks[bank] = Bank(row, activate, read)
        return read

    def _closed(self, channel: Channel, number: int, bank: int, start: int) -> int:
        """From when on a bank can be activated, by itself: a refresh has closed it, or it is precharged now."""
        t, opened = self.timing, channel.banks.get(bank)
        if opened is None:
            channel.closed += 1
            return start
        precharge = max(start, opened.activated + t.ras, opened.read + t.rtp)
        if self._is_refreshed(number, bank, opened.activated, precharge):
            channel.closed += 1
            return max(start, opened.activated + t.rc)
        channel.conflicts += 1
        return max(precharge + t.rp, opened.activated + t.rc)

    def _read_time(self, channel: Channel, number: int, bank: int, ready: int) -> int:
        t, group = self.timing, self._group(bank)

        def allowed(time: int) -> bool:
            for other in channel.reads:
                apart = abs(time - other.time)
                if apart < t.data or apart < t.ccd_s or (other.group == group and apart < t.ccd_l):
                    return False
            return self._is_clear(number, bank, time, t.rtp)

        gaps = (t.data, t.ccd_s, t.ccd_l)
        return self._earliest(number, bank, ready, (one.time + gap for one in channel.reads for gap in gaps), allowed)

    def _activate_time(self, channel: Channel, number: int, bank: int, ready: int) -> int:
        t, group = self.timing, self._group(bank)

        def allowed(time: int) -> bool:
            for other in channel.activates:
                apart = abs(time - other.time)
                if apart < t.rrd_s or (other.group == group and apart < t.rrd_l):
                    return False
            times = sorted([time, *(one.time for one in channel.activates)])
            if any(fifth - first < t.faw for first, fifth in zip(times, times[4:], strict=False)):
                return False
            return self._is_clear(number, bank, time, t.ras)

        gaps = (t.rrd_s, t.rrd_l, t.faw)
        others = (one.time + gap for one in channel.activates for gap in gaps)
        return self._earliest(number, bank, ready, others, allowed)

    def _earliest(
        self, number: int, bank: int, ready: int, others: Iterable[int], allowed: Callable[[int], bool]
    ) -> int:
        """The first time from `ready` on that is allowed: then, or when a gap to another command or a refresh ends."""
        t = self.timing
        times = {ready, *(time for time in others if time >= ready)}
        ends = {begin + t.rp + t.rfc for begin in self._refreshes(number, bank, ready, max(times) + t.refi)}
        return next(time for time in sorted(times | ends) if time >= ready and allowed(time))

    def _is_clear(self, number: int, bank: int, time: int, lead: int) -> bool:
        """Whether a bank takes a command: it is not closed and refreshed, nor less than `lead` later."""
        t = self.timing
        begins = self._refreshes(number, bank, time, time + lead)
        return all(time + lead <= begin or time >= begin + t.rp + t.rfc for begin in begins)

    def _is_refreshed(self, number: int, bank: int, first: int, last: int) -> bool:
        return any(first < begin <= last for begin in self._refreshes(number, bank, first, last))

    def _refreshes(self, number: int, bank: int, first: int, last: int) -> list[int]:
        """When those begin that have to do with the time from `first` to `last`, and some around."""
        t = self.timing
        set_of_bank = {t.banks * t.bank_groups: bank, t.banks: bank // t.bank_groups, 1: 0}[t.refresh_sets]
        turn = number * t.refresh_sets + set_of_bank
        phase = t.refi * (2 * turn + 1) // (2 * t.channels * t.refresh_sets)
        return [phase + n * t.refi for n in range(first // t.refi - 2, last // t.refi + 2)]

    def _group(self, bank: int) -> int:
        return bank % self.timing.bank_groups


def _split(bits: list[int], size: int) -> tuple[list[int], list[int]]:
    """The bits, lowest first, that count up to `size`, and those above."""
    count = size.bit_length() - 1
    return bits[:count], bits[count:]


def _xored(bits: list[int], count: int) -> list[int]:
    return [sum(bits[bit::count]) % 2 for bit in range(count)]


def _number(bits: list[int]) -> int:
    return sum(bit << place for place, bit in enumerate(bits))
