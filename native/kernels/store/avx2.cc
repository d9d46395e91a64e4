#include "kernels/store/store_rows.h"

namespace tilepress {

void avx2::store_block(const BlockResults& results) { store_rows(results); }

}  // namespace tilepress
