"""Constants of the simulation of DECA: what was fitted, what was chosen with which cells in sight, and structure."""

from ...evidence import Cells, Choice, Fitted
from ...roofsurface.decompressors import LIBXSMM_COUNTS


def _libxsmm() -> dict[str, Fitted]:
    """The operations of libxsmm's sequences, whose home is `roofsurface.decompressors`."""
    return {
        f"libxsmm_operations_{bits}_bit{'_sparse' if sparse else ''}": count
        for (bits, sparse), count in LIBXSMM_COUNTS.items()
    }


TABLE_1, TABLE_3, TABLE_5 = Cells("deca/table1"), Cells("deca/table3"), Cells("deca/table5")

# The whole list.
FITTED: dict[str, Fitted] = {
    **_libxsmm(),
    "instructions_per_vector_operation": Fitted(2.7, "", (), "section 4.2: 40 to 80 % of six commit slots are in use"),
    "memory_latency": Fitted(
        57.2,
        "ns",
        tuple(Cells("deca/table5", row, "performance") for row in ("none", "default L2", "DECA, degree 1")),
    ),
    "page_walk": Fitted(50, "cycle", (Cells("deca/table5", "DECA, degree 1"),)),
    "memory_share": Fitted(
        0.94,
        "",
        (
            *(Cells("deca/table4", row, "DECA, MEM") for row in ("100%", "50%", "20%")),
            Cells("deca/table5", "DECA, degree 5", "performance"),
        ),
    ),
    "one_way": Fitted(3, "cycle", (Cells("deca/table4", "5%", "DECA, *"),)),
    "tile_switch": Fitted(1, "cycle", (Cells("deca/table4", "*", "DECA, DECA"),)),
    "software_memory_share": Fitted(0.76, "", (Cells("deca/table4", "100%", "software, *"),)),
    "software_vector_share": Fitted(
        0.91, "", tuple(Cells("deca/table4", row, "software, AVX") for row in ("50%", "20%", "5%"))
    ),
    "l2_prefetch_lines": Fitted(8, "line", (Cells("deca/table5", "default L2"),)),
    "other_layer_time": Fitted(0.236e-3, "s", (TABLE_1,), "what a layer takes beside its GeMMs"),
    "other_sequence_time": Fitted(1.4e-6, "s", (TABLE_1,), "more for each sequence of the batch"),
    "attention_rate": Fitted(730e9, "B/s", (TABLE_1,), "keys and values of all query heads that it reads"),
}

CHOICES: dict[str, Choice] = {
    "table_2_real": Choice(
        "libxsmm's counts were read with the measured rates in sight", (Cells("deca/table2", "Real"),)
    ),
    "table_4_whole": Choice("constants were fitted row by row with the whole table in sight", (Cells("deca/table4"),)),
    "kind_of_memory": Choice(
        "a queue with one latency, as in the paper's simulator, when DRAM's banks were seen to give 1.9 for 2.9 TFLOPS",
        (Cells("deca/table5", "*", "performance"), Cells("deca/table4", "*", "DECA, *")),
    ),
    "call_queue": Choice(
        "an entry is held until its call commits, as a load buffer's is; six tile registers; eight instructions a tile",
        (Cells("deca/table4", "5%", "DECA, *"),),
    ),
    "prefetchers": Choice("a prefetcher for each loader, triggers, page walks and a queue of prefetches", (TABLE_5,)),
    "row_tiles": Choice(
        "with 64 rows a compressed GeMM runs four times, an uncompressed one reads its tiles again from cache",
        (Cells("deca/table6", "*", "N=64, *"),),
    ),
    "attention_heads": Choice(
        "attention costs what all query heads read, noticed when OPT-66B was up to 96 % off",
        (Cells("deca/table6", "OPT-66B, *"),),
    ),
    "area_and_power": Choice(
        "CACTI's error correction and devices, 22 nm interpolated; of power also the crossbar's layout and six bits",
        (TABLE_3,),
    ),
}


def fitted(name: str) -> float:
    return FITTED[name].value


LOADERS = 2  # DECA, section 5.2: two loaders, two output registers
QUEUE = 8  # DECA, section 7: entries of the TEPL queue
STAGES = 3  # DECA, section 6.1: dequantise, expand, scale
LOADER_LINES = 32  # DECA, table 3: SQQ of 2 KB, 64 bytes an entry; the LDU's CAM of 256 bytes, 8 an entry, has as many
TILE_LINES = 16  # rows of a decompressed tile, 64 bytes each; DECA, section 2.3
TILE_REGISTERS = 8  # of AMX; DECA, section 2.3
WEIGHT_REGISTERS = TILE_REGISTERS - 2  # one has activations, one sums; nobody tells how many physical ones there are
REORDER_BUFFER = 512  # micro-operations; MicroOpBufferSize of LLVM's X86SchedSapphireRapids.td
MISPREDICTION = 14  # cycles; MispredictPenalty there
TILE_INSTRUCTIONS = 8  # assumed: TEPL, TComp, a load of activations, four addresses and a branch
BRANCH_LATENCY = 20  # assumed: cycles until a branch is known to have been predicted wrongly
TRAINING = 2  # accesses in a page before Intel's L2 streamer prefetches; Intel Optimization Reference Manual
PREFETCH_QUEUE = 32  # lines that wait for room among the misses; PREFETCH_MAX_QUEUE_LENGTH in Sniper, DECA's simulator
DEGREE = 5  # DECA, section 8.3: tiles ahead, the degree of its evaluation
