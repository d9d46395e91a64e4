# Flags of kernels. CMakeLists.txt and tests/kernels/test_simd.py read this: nothing but set(NAME flags and ${NAME}s).

# Of every kernel. Contraction would round once where the specification rounds twice. No vector crosses a function that
# is not inlined, so how one would be passed (psabi) does not matter.
set(KERNEL_FLAGS -O3 -ffp-contract=off -fno-math-errno -Wall -Wextra -Wconversion -Wno-psabi)

# Of the kernels of one instruction set, and of nothing else: what runs is chosen at run time.
set(FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi2)
# gcc 12 takes the undefined operands inside its own intrinsics for mistakes of ours.
set(FLAGS_avx512 ${FLAGS_avx2} -Wno-uninitialized -Wno-maybe-uninitialized -mprefer-vector-width=512 -mavx512f -mavx512bw -mavx512vl
    -mavx512dq)
set(FLAGS_avx512_vnni ${FLAGS_avx512} -mavx512vnni)
set(FLAGS_avx512_vbmi2 ${FLAGS_avx512_vnni} -mavx512vbmi -mavx512vbmi2 -mavx512bitalg -mavx512vpopcntdq -mgfni)
set(FLAGS_avx512_bf16 ${FLAGS_avx512_vbmi2} -mavx512bf16)
# What came with matrix units, fp16 too.
set(FLAGS_amx ${FLAGS_avx512_bf16} -mavx512fp16 -mamx-tile -mamx-bf16 -mamx-int8)
# Scheduled for a core that has just that, and only after register allocation, since registers are few: worth 2 to 5 %
# there, and nothing that other cores could not run.
set(FLAGS_neon_dotprod -march=armv8.2-a+dotprod+fp16 -mtune=neoverse-n1 -fno-schedule-insns)
set(FLAGS_neon_i8mm -march=armv8.2-a+dotprod+i8mm)
