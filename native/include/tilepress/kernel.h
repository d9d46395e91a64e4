// What kernels are, and how they register themselves.
//
// A kernel is a function over plain pointers. It never allocates, starts threads or prints; the caller brings memory
// and checks every length. An operation is a name and the type of its function. Its kernels, one for each instruction
// set, are the functions of that name in <area>/<operation>/<isa>.cc; generic.cc is compiled once for each instruction
// set that its first line names. native/README.md gives the grammar of names.
//
// Kernels and the headers they share have everything in a nameless namespace. The same headers are compiled with the
// flags of several instruction sets: of a function with a name that the linker sees it would keep one copy, perhaps
// with instructions that the machine lacks.
#pragma once

namespace tilepress {

// Ascending within a family: a machine that has one has all below it in its family; portable is below both.
enum class Isa { portable, neon_dotprod, neon_i8mm, avx2, avx512, avx512_vnni, avx512_vbmi2, avx512_bf16, amx };
inline constexpr int kIsas = 9;

// A kernel as its file registers it: constant data, so that nothing of a file runs before its instruction set is known.
struct KernelEntry {
  const char* operation;
  const char* source;  // path of its file
  Isa isa;
  bool emulator;         // of a matrix unit, for tests
  const void* function;  // points to the pointer to the function
};

}  // namespace tilepress

// Declares an operation: its name, and the type of its function.
#define TILEPRESS_OPERATION(name, ...)     \
  namespace ops {                          \
  struct name {                            \
    using Function = __VA_ARGS__;          \
    static constexpr char kName[] = #name; \
  };                                       \
  }                                        \
  static_assert(true)

#if defined(TILEPRESS_EMULATOR)
#define TILEPRESS_IS_EMULATOR true
#else
#define TILEPRESS_IS_EMULATOR false
#endif

// Registers the function of that name. The linker gathers the pointers of all files in one section.
#define TILEPRESS_KERNEL(name)                                                                                       \
  constinit ops::name::Function* const name##_function = name;                                                       \
  constinit const KernelEntry name##_entry = {ops::name::kName, __FILE__, Isa::TILEPRESS_ISA, TILEPRESS_IS_EMULATOR, \
                                              &name##_function};                                                     \
  [[gnu::section("tilepress_kernels"), gnu::used]] constinit const KernelEntry* name##_pointer = &name##_entry
