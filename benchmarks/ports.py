"""What the kernels' instructions cost on this processor, alone and in pairs, in times of a shuffle.

    python benchmarks/ports.py

A shuffle of 512 bits (`vpermb`) has one port, and one enters it each cycle; so times of it are cycles, whatever the
clock and whoever else uses the core. Two instructions that take as long together as the longer of them alone have
different ports. Writes a program in C++, compiles it (c++ must be there) and runs it. What it gave is
in docs/lab/2026-11-avx512-sparse-codes.md.
"""

import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# {i}: another register for each of the eight in a row; {k}: another mask
INSTRUCTIONS = {
    "vpermb": "vpermb %zmm1, %zmm2, %zmm{i}",
    "vpaddb": "vpaddb %zmm1, %zmm2, %zmm{i}",
    "vpslld": "vpslld $4, %zmm1, %zmm{i}",
    "vgf2p8affineqb": "vgf2p8affineqb $0, %zmm1, %zmm2, %zmm{i}",
    "vpermi2b": "vpermi2b %zmm1, %zmm2, %zmm{i}",
    "vpexpandb": "vpexpandb 33(%rsi), %zmm{i}{{%k1}}{{z}}",
    "vpexpandw": "vpexpandw 33(%rsi), %zmm{i}{{%k1}}{{z}}",
    "kmovq": "kmovq (%rsi), %k{k}",
    "vcvtph2ps": "vcvtph2ps %ymm1, %zmm{i}",
    "vfmadd231ps": "vfmadd231ps %zmm1, %zmm2, %zmm{i}",
    "vpdpbusd": "vpdpbusd (%rsi){{1to16}}, %zmm2, %zmm{i}",
    "vdpbf16ps": "vdpbf16ps (%rsi){{1to16}}, %zmm2, %zmm{i}",
}
PAIRED = ["vpermb", "vpslld"]  # of which each has one port
NEEDED = {"avx512_vbmi2", "avx512_vnni", "avx512_bf16", "gfni"}
COMPILE = ["c++", "-std=c++20", "-O2", "-march=sapphirerapids"]
LENGTH = 8  # instructions in a row, none of which waits for another

PROGRAM = """\
#include <x86intrin.h>

#include <algorithm>
#include <cstdio>

alignas(64) static unsigned char memory[256];
#define REGISTERS "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", \\
  "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "k1", "k2", "k3", "k4", "k5"
%s
template <class Loop>
static void compare(const char* name, const Loop& loop) {
  double times[101];
  for (double& time : times) {
    const auto start = __rdtsc();
    loop(500);
    const auto middle = __rdtsc();
    loop_0(500);
    time = double(middle - start) / double(__rdtsc() - middle);
  }
  std::sort(times, times + 101);
  std::printf("%%-28s %%.2f\\n", name, times[50]);
}

int main() {
%s}
"""
LOOP = """\
static void loop_%d(long count) {
  asm volatile("mov $0x5555aaaa3333cccc, %%%%rax; kmovq %%%%rax, %%%%k1\\n1:\\n%s\\tdec %%0\\n\\tjnz 1b\\n"
               : "+r"(count) : "S"(memory) : "rax", "memory", REGISTERS);
}
"""


def main() -> None:
    table = Path("/proc/cpuinfo")
    has = set(table.read_text().split()) if table.exists() else set()
    if platform.machine() != "x86_64" or NEEDED - has:
        sys.exit(f"these instructions need an x86-64 processor with {', '.join(sorted(NEEDED))}")
    tried = {name: [name] for name in INSTRUCTIONS}
    tried |= {f"{name} + {other}": [name, other] for name in INSTRUCTIONS for other in PAIRED if name not in PAIRED}
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "ports.cc"), Path(folder, "ports")
        source.write_text(program_of(tried))
        subprocess.run([*COMPILE, str(source), "-o", str(program)], check=True)
        print(subprocess.run([program], check=True, capture_output=True, text=True).stdout, end="")


def program_of(tried: dict[str, list[str]]) -> str:
    loops = "".join(LOOP % (i, "".join(map(text, in_a_row(names)))) for i, names in enumerate(tried.values()))
    calls = "".join(f'  compare("{name}", loop_{i});\n' for i, name in enumerate(tried))
    return PROGRAM % (loops, calls)


def in_a_row(names: list[str]) -> list[str]:
    """Eight times these, each with registers of its own."""
    return [
        INSTRUCTIONS[name].format(i=8 + LENGTH * second + i, k=2 + i % 4)
        for i in range(LENGTH)
        for second, name in enumerate(names)
    ]


def text(instruction: str) -> str:
    """As the compiler takes it inside a string: what it gives a meaning of its own, after a percent sign."""
    return "\\t" + re.sub(r"[%{}]", r"%\g<0>", instruction) + "\\n"


if __name__ == "__main__":
    main()
