"""A netlist the slow way: every net asks what drives it, cell by cell, with dicts and Python's own booleans."""


class Reference:
    """Of a module of Yosys' JSON and `functions`: the cell's outputs' expressions in Python, by cell and pin; a
    flip-flop called FLOP takes D to Q."""

    def __init__(self, module, functions):
        self.ports, self.cells, self.drivers = module["ports"], module["cells"], {}
        self.codes = {
            cell: {pin: compile(text, cell, "eval") for pin, text in pins.items()} for cell, pins in functions.items()
        }
        for name, cell in self.cells.items():
            silent = {"$scopeinfo": [], "CKGATE": []}
            outputs = {"FLOP": ["Q"], "$mem_v2": ["RD_DATA"], **silent}.get(cell["type"], ["Y"])
            for pin in outputs:
                for place, net in enumerate(cell["connections"][pin]):
                    self.drivers[net] = name, pin, place
        self.state = {name: 0 for name, cell in self.cells.items() if cell["type"] == "FLOP"}
        self.gates = {cell["connections"]["G"][0]: cell for cell in self.cells.values() if cell["type"] == "CKGATE"}
        self.words = {name: {} for name, cell in self.cells.items() if cell["type"] == "$mem_v2"}

    def run(self, cycles, begin):
        """Toggles of each driven net from cycle `begin` on; `cycles`: bits of each input port."""
        toggles, before = dict.fromkeys(self.drivers, 0), {}
        for index, inputs in enumerate(cycles):
            self.values = {
                net: int(bit)
                for port, bits in inputs.items()
                for net, bit in zip(self.ports[port]["bits"], bits, strict=True)
            }
            now = {net: self.value(net) for net in self.drivers}
            if index >= begin:
                for net, value in now.items():
                    toggles[net] += value != before[net]
            self.clock()
            before = now
        return toggles

    def value(self, net):
        if isinstance(net, str):
            return int(net == "1")
        if net not in self.values:
            name, pin, place = self.drivers[net]
            self.values[net] = self.driven(name, pin, place)
        return self.values[net]

    def driven(self, name, pin, place):
        cell = self.cells[name]
        nets = cell["connections"]
        if name in self.state:
            return self.state[name]
        if name in self.words:
            return self.words[name].get(self.word(nets["RD_ADDR"]), 0) >> place & 1
        pins = {one: bool(self.value(bits[0])) for one, bits in nets.items() if one != pin}
        return int(eval(self.codes[cell["type"]][pin], {}, pins))

    def next(self, name, nets):
        """What a flip-flop becomes: what it is, if its clock is stopped."""
        gate = self.gates.get(nets["C"][0])
        passes = gate is None or any(self.value(gate["connections"][pin][0]) for pin in ("EN", "TE"))
        return self.value(nets["D"][0]) if passes else self.state[name]

    def word(self, nets):
        return sum(self.value(net) << place for place, net in enumerate(nets))

    def clock(self):
        state = {name: self.next(name, self.cells[name]["connections"]) for name in self.state}
        for name, words in self.words.items():
            nets = self.cells[name]["connections"]
            mask, address = self.word(nets["WR_EN"]), self.word(nets["WR_ADDR"])
            words[address] = words.get(address, 0) & ~mask | self.word(nets["WR_DATA"]) & mask
        self.state = state


FUNCTIONS = {
    "INV": {"Y": "not A"},
    "NAND": {"Y": "not (A and B)"},
    "NOR": {"Y": "not (A or B)"},
    "XOR": {"Y": "A != B"},
    "NAND3": {"Y": "not (A and B and C)"},
    "BUF": {"Y": "A"},
}
