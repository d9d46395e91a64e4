"""Constants of the simulation of DECA: what was fitted, and to what, and what is structure."""

from ...roofsurface.decompressors import LIBXSMM_COUNTS
from ..fitted import Fitted


def _libxsmm() -> dict[str, Fitted]:
    """The operations of libxsmm's sequences, whose home is `roofsurface.decompressors`."""
    return {
        f"libxsmm_operations_{bits}_bit{'_sparse' if sparse else ''}": Fitted(count.operations, "", count.source)
        for (bits, sparse), count in LIBXSMM_COUNTS.items()
    }


# The whole list. Table 6 and all speed-ups are held out: nothing here was set by them.
FITTED: dict[str, Fitted] = {
    **_libxsmm(),
    "instructions_per_vector_operation": Fitted(2.7, "", "section 4.2: 40 to 80 % of six commit slots are in use"),
    "memory_latency": Fitted(143, "cycle", "table 5, TFLOPS without weight prefetching, with degree 1 and default L2"),
    "page_walk": Fitted(50, "cycle", "table 5, TFLOPS, misses and prefetches with degree 1"),
    "memory_share": Fitted(0.94, "", "MEM of DECA in table 4 at 100, 50 and 20 %; table 5, TFLOPS with degree 5"),
    "one_way": Fitted(3, "cycle", "MEM, TMUL and DECA of DECA in table 4 at 5 %"),
    "tile_switch": Fitted(1, "cycle", "the DECA column of table 4, all four rows"),
    "software_memory_share": Fitted(0.76, "", "MEM, TMUL and AVX of software-only in table 4 at 100 %"),
    "software_vector_share": Fitted(0.91, "", "AVX of software-only in table 4 at 50, 20 and 5 %"),
    "l2_prefetch_lines": Fitted(8, "line", "table 5, TFLOPS, misses and prefetches of the default L2 prefetcher"),
    "other_layer_time": Fitted(0.236e-3, "s", "table 1, all twelve cells: what a layer takes beside its GeMMs"),
    "other_sequence_time": Fitted(1.4e-6, "s", "table 1, all twelve cells: more for each sequence of the batch"),
    "attention_rate": Fitted(
        730e9, "B/s", "table 1, all twelve cells: keys and values of all query heads that it reads"
    ),
}


def fitted(name: str) -> float:
    return FITTED[name].value


LOADERS = 2  # DECA, section 5.2: two loaders, two output registers
QUEUE = 8  # DECA, section 7: entries of the TEPL queue
STAGES = 3  # DECA, section 6.1: dequantise, expand, scale
TILE_LINES = 16  # rows of a decompressed tile, 64 bytes each; DECA, section 2.3
PAGE_LINES = 64  # of 64 bytes in a page of 4 KiB
TRAINING = 2  # accesses in a page before Intel's L2 streamer prefetches; Intel Optimization Reference Manual
PREFETCH_QUEUE = 32  # lines that wait for room among the misses; PREFETCH_MAX_QUEUE_LENGTH in Sniper, DECA's simulator
DEGREE = 5  # DECA, section 8.3: tiles ahead, the degree of its evaluation
MEMORY_OPERATIONS_PER_ROW = 3  # assumed: codes, mask and store of a row, from what section 2.4 tells of libxsmm
